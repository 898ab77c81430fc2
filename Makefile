# Every target runs in .venv, built here from a lock; nothing else is installed. The demo takes what
# noisedesign needs and no more, all others the extras besides.
PYTHON ?= python3
BIN := .venv/bin
NEEDED := .venv/.needed
STAMP := .venv/.installed
LOCK := uv pip compile --universal --generate-hashes --python-version 3.11 \
	--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"
# Without "bench" and "gpu": their gigabytes are for nobody who runs the tests.
SHOWN := --extra pages --extra pictures
EXTRAS := $(SHOWN) --extra dask --extra data --extra mosek --extra parallel --extra parquet \
	--extra safetensors --extra solvers --extra test
TRAINERS := --extra flower --extra huggingface --extra keras --extra lightning --extra nvflare \
	--extra opacus --extra opake --extra pfl --extra torch --group trainers
# PyTorch for the processor alone; where this index is out of reach, as pip finds it elsewhere.
TORCH := torch==2.13.0
TORCHVISION := torchvision==0.28.0
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

# Two processes; a file's tests stay in one, where they share what they set up.
PYTEST := pytest --numprocesses 2 --dist loadfile

.PHONY: demo lint tests test test-slow test-kernels test-trainers test-pythons test-extras mutants
.PHONY: test-browser proofs results results-marks notebooks docs runtime dist release-check lock clean

demo: $(NEEDED)
	$(BIN)/noisedesign demo -o out

# The matrices of the tests are small: a second BLAS thread only waits for the first.
tests test-slow test-kernels test-trainers test-pythons mutants: export OPENBLAS_NUM_THREADS ?= 1

test: lint tests

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

tests: $(STAMP)
	$(BIN)/python -m $(PYTEST)

test-slow: $(STAMP)
	$(BIN)/python -m $(PYTEST) -m slow

# KERNELS="Haswell another" are those two only: see tests/support/kernels.py.
test-kernels: $(STAMP)
	$(BIN)/python -m tests.support.kernels $(KERNELS)

# Adapters against the trainers themselves, and the table of trainers in the documentation, which is
# made of what they saw. pfl, JAX Privacy and p2pfl need other versions of the same packages, so there
# are three environments. What is in no package index is cloned, or skipped.
test-trainers: export PYTHONPATH := $(CURDIR):$(CURDIR)/lab
test-trainers: export NOISEDESIGN_TRAINER_ROWS := $(CURDIR)/out/trainer-rows
test-trainers: .venv-trainers/.installed .venv-trainers-jax/.installed .venv-trainers-numpy1/.installed
	rm -rf $(NOISEDESIGN_TRAINER_ROWS)
	$(PYTHON) tools/clones.py
	.venv-trainers/bin/python -m pytest tests/adapters tests/noise/test_device.py
	.venv-trainers-jax/bin/python -m pytest tests/adapters/test_jax_*.py tests/adapters/test_examples.py \
		tests/privacy/amplification/test_published.py
	.venv-trainers-numpy1/bin/python -m pytest tests/adapters/test_p2pfl.py tests/adapters/test_gossipy.py \
		tests/adapters/test_fedml.py tests/adapters/test_decentralizepy.py tests/files/exports/test_decor.py \
		tests/files/exports/test_trainers_themselves.py
	$(PYTHON) tools/trainers_table.py $(NOISEDESIGN_TRAINER_ROWS)

# The site in a browser: how wide pages are, letters of pictures, searches, screenshots.
test-browser: $(STAMP) .venv-browser/.installed
	$(BIN)/python -m pytest -m slow tests/project/test_browser.py

# The oldest Python with the oldest packages, the newest found with the newest; WHAT="tests/noise -x"
# are arguments for pytest.
test-pythons:
	$(PYTHON) tools/pythons.py $(WHAT)

# Every extra installed by pip in an environment of its own, under every Python found;
# WHAT="pages dask" are those two.
test-extras: $(NEEDED)
	$(BIN)/python tools/extras.py $(WHAT)

# Small wrong changes, each of which some test has to notice: a sample of them, another one every day;
# WHAT="--all" or WHAT="noisedesign/noise": see tests/support/mutants.py.
mutants: $(STAMP)
	$(BIN)/python -m tests.support.mutants $(WHAT)

# The theorems of proofs/, checked by Rocq; skipped where it is not. WHAT="design.v" is one of yours besides.
proofs:
	sh proofs/build.sh $(WHAT)

# Measures what the pages show and is not stored, or of other code, and writes them; goes on where it
# was. WHAT="speed counts", "--most 5" (minutes each) or "--list": see benchmarks/measured.
results: $(STAMP)
	$(BIN)/python -m benchmarks.measured $(WHAT)

# Seconds: writes these pages of what is stored, and marks what is of other code.
results-marks: $(NEEDED)
	$(BIN)/python -m benchmarks.measured --marks

# Runs notebooks/*.py and stores each with what it prints and draws.
notebooks: $(STAMP)
	$(BIN)/python -m tests.support.notebooks $(WHAT)

# The site; its first page is docs/_build/index.html.
docs: $(STAMP)
	$(BIN)/python -m sphinx --fail-on-warning --keep-going -b html -d docs/_build/.doctrees docs docs/_build

# The wheel of a node that only draws noise, into the folder dist.
runtime: $(NEEDED)
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation -w dist tools/runtime

# What is uploaded of a release, of the files as they are, into the folder dist.
dist: $(STAMP)
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist .
	$(BIN)/python -m build --no-isolation --wheel --outdir dist lab
	$(BIN)/python -m build --no-isolation --wheel --outdir dist tools/runtime

# What is left to do before a release; WHAT="--set 0.3.0", "--run" or "--quick": see tools/release.py.
release-check: $(STAMP)
	$(BIN)/python tools/release.py $(WHAT)

# What pyproject.toml asks for besides; `make lock UPGRADE=--upgrade` takes all anew. Needs uv
# (https://docs.astral.sh/uv); everything else only needs Python.
lock:
	$(LOCK) $(EXTRAS) $(UPGRADE) pyproject.toml -o requirements.lock
	$(LOCK) $(EXTRAS) --resolution lowest-direct $(UPGRADE) pyproject.toml \
		-o requirements-lowest.lock
	$(LOCK) $(SHOWN) --group build -c requirements.lock pyproject.toml -o requirements-demo.lock
	$(LOCK) $(TRAINERS) --no-emit-package torch $(UPGRADE) pyproject.toml \
		-o requirements-trainers.lock
	$(LOCK) --extra jax --group trainers-jax $(UPGRADE) pyproject.toml \
		-o requirements-trainers-jax.lock
	$(LOCK) --group trainers-numpy1 --no-emit-package torch --no-emit-package torchvision $(UPGRADE) \
		-o requirements-trainers-numpy1.lock
	$(LOCK) --group browser $(UPGRADE) -o requirements-browser.lock

clean:
	rm -rf .venv .venv-browser .venv-trainers .venv-trainers-jax .venv-trainers-numpy1 .venv-pythons .trainers out build dist docs/_build docs/gallery/*.ipynb docs/reference/names *.egg-info .mypy_cache \
		.pytest_cache .ruff_cache .hypothesis .import_linter_cache

$(NEEDED): requirements-demo.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "noisedesign needs Python 3.11 or newer, found: $$($(PYTHON) --version 2>&1)."; \
		echo "Name another one: make PYTHON=python3.12"; exit 1; } >&2
	$(PYTHON) -m venv --clear .venv
	@$(BIN)/python tools/install.py requirements-demo.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e . -e ./lab
	@touch $@

$(STAMP): $(NEEDED) requirements.lock
	@$(BIN)/python tools/install.py requirements.lock
	@touch $@

.venv-trainers/.installed: requirements-trainers.lock
	$(PYTHON) -m venv --clear .venv-trainers
	.venv-trainers/bin/python -m pip install --quiet --retries 1 \
		--extra-index-url $(TORCH_INDEX) $(TORCH)
	@.venv-trainers/bin/python tools/install.py $<
	@touch $@

.venv-trainers-jax/.installed: requirements-trainers-jax.lock
	$(PYTHON) -m venv --clear .venv-trainers-jax
	@.venv-trainers-jax/bin/python tools/install.py $<
	@touch $@

# MFDL is written for Python 3.12; where there is none, its test is skipped.
.venv-trainers-numpy1/.installed: requirements-trainers-numpy1.lock
	$$(cd tools && $(PYTHON) -c "import pythons; print(pythons.interpreter('3.12') or '$(PYTHON)')") \
		-m venv --clear .venv-trainers-numpy1
	.venv-trainers-numpy1/bin/python -m pip install --quiet --retries 1 \
		--extra-index-url $(TORCH_INDEX) $(TORCH) $(TORCHVISION)
	@.venv-trainers-numpy1/bin/python tools/install.py $<
	@touch $@

.venv-browser/.installed: requirements-browser.lock
	$(PYTHON) -m venv --clear .venv-browser
	@.venv-browser/bin/python tools/install.py $<
	@touch $@
