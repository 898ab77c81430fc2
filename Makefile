# Every target runs in .venv, built here from requirements.lock; nothing else is installed.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
# Without the extras "bench" and "gpu": their gigabytes are for nobody who runs the tests.
LOCK := uv pip compile --universal --generate-hashes --python-version 3.11 \
	--extra dask --extra mosek --extra parquet --extra solvers --extra test \
	--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"

.PHONY: demo test test-slow test-kernels bench lock clean

demo: $(STAMP)
	$(BIN)/noisedesign demo -o out

# The matrices of the tests are small: a second BLAS thread only waits for the first.
test test-slow test-kernels: export OPENBLAS_NUM_THREADS ?= 1

test: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest

test-slow: $(STAMP)
	$(BIN)/python -m pytest -m slow

# KERNELS="Haswell another" are those two only: see tests/kernels.py.
test-kernels: $(STAMP)
	$(BIN)/python -m tests.kernels $(KERNELS)

bench: $(STAMP)
	$(BIN)/python -m benchmarks.speed
	$(BIN)/python -m benchmarks.size
	$(BIN)/python -m benchmarks.accounts
	$(BIN)/python -m benchmarks.space_time
	$(BIN)/python -m benchmarks.toeplitz
	$(BIN)/python -m benchmarks.local

# Needs uv (https://docs.astral.sh/uv); everything else only needs Python.
lock:
	$(LOCK) --upgrade pyproject.toml -o requirements.lock

clean:
	rm -rf .venv out build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis \
		.import_linter_cache

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "noisedesign needs Python 3.11 or newer, found: $$($(PYTHON) --version 2>&1)."; \
		echo "Name another one: make PYTHON=python3.12"; exit 1; } >&2
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	touch $@
