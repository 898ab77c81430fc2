"""MFDL and WhisperDSGD themselves, with the files we export: their own commands, to the end.

Nothing of them is played or changed. Their data are small files in their own formats, made up, and
their noise is kept as it is drawn or added. DECOR is in ``test_decor``.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import noisedesign as nd
from noisedesign.problem.calibration import calibrate
from tests.support.adapters import check_noise, designed_covariance
from tests.support.clones import clone
from tests.support.pages import examples
from tests.support.trainer_rows import trainer_row

pytest.importorskip("torch", reason="MFDL and WhisperDSGD are programs of torch")


AFTER_IMPORT = """
import importlib.abc, importlib.util, sys
import pathlib

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module
        def exec_module(module):
            run(module)
            imported(module)
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Finder())
"""
"""Calls ``imported`` with the module MODULE once the trainer has imported it."""


def run(command: str, folder: Path, *, module: str = "", hook: str = "", **variables: str) -> str:
    """Run a command of a trainer in ``folder``, with ``hook`` called after ``module``; what it
    printed."""
    paths = [variables.pop("PYTHONPATH", "")]
    if module:
        paths.insert(0, str(folder / "hook"))
        (folder / "hook").mkdir()
        lines = f"MODULE = {module!r}\n{hook}{AFTER_IMPORT}"
        (folder / "hook" / "sitecustomize.py").write_text(lines, encoding="utf-8")
    variables |= {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, *command.split()],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


# --- MFDL -----------------------------------------------------------------------------------------

EPOCHS, BATCHES, RECORDS = 4, 4, 1500
KEEP_NOISE = """
def imported(module):
    import numpy
    draw = module.MFDLSGD.initialize_noises
    def initialize_noises(self):
        draw(self)
        drawn = len(list(pathlib.Path().glob("noise-*.npy")))
        numpy.save(f"noise-{drawn}.npy", self.noises.numpy())
    module.MFDLSGD.initialize_noises = initialize_noises
"""
PROBLEM = f"""
name = "florentine"
design = "time"

[graph]
kind = "florentine"
weights = "row-normalized"

[workload]
kind = "decentralized"

[participation]
epochs = {EPOCHS}
separation = {BATCHES}

[privacy]
epsilon = 4.0
delta = 1e-5
clip = 1.0
"""


@pytest.mark.skipif(sys.version_info < (3, 12), reason="MFDL is written for Python 3.12")
def test_mfdl_trains_to_the_end_with_our_noise(tmp_path: Path) -> None:
    joblib = pytest.importorskip("joblib", reason="MFDL needs scikit-learn")
    pytest.importorskip("fedivertex", reason="MFDL needs fedivertex")
    source, folder = clone("MFDL"), tmp_path
    (folder / "florentine.toml").write_text(PROBLEM, encoding="utf-8")
    design = nd.solve(nd.load(folder / "florentine.toml")).design
    nd.export(design, to="mfdl", path=folder / "cache", problem_text=PROBLEM)
    (sidecar,) = (folder / "cache").rglob("OptimalDL_PostAVG.json")
    how = json.loads(sidecar.read_text("utf-8"))
    assert how["graph_known_to_trainer"]
    assert how["mixing_note"].endswith("was made for the same W.")
    # scikit-learn looks for California housing here: nine columns, the value first.
    data = folder / "data"
    data.mkdir()
    rng = np.random.default_rng(0)
    table = rng.normal(size=(RECORDS, 9))
    table[:, 0] = table[:, 1:] @ rng.normal(size=8)
    joblib.dump(np.abs(table) + 1.0, data / "cal_housing_py3.pkz", compress=6)
    mu, steps = how["mu_argument"], EPOCHS * BATCHES
    # The command of the guide, in small; lines of its table that leave out what MFDL optimises.
    results = folder / "results" / "housing"
    results.mkdir(parents=True)
    name = f"simulation_graphflorentine_nodes15_mu{mu}_reps{EPOCHS}_nbbatches{BATCHES}_mbps1_"
    table_of_results = results / f"{name}lr0.1_seed421_steps{steps}_.csv"
    table_of_results.write_text("method\nOPTIMAL_DL_MSG\nOPTIMAL_DL_LOCALCOR\n", encoding="utf-8")
    command = f"-m MFDL.simulations.decentralized_simulation --dataset housing --mu {mu}"
    command += f" --graph_name florentine --nb_nodes 15 --num_repetition {EPOCHS} --lr 0.1"
    command += f" --nb_batches {BATCHES} --dataloader_seed 421 --use_optimals"
    told = run(
        command,
        folder,
        module="MFDL.simulations.mfdl_optimizer",
        hook=KEEP_NOISE,
        PYTHONPATH=str(source),
        SCIKIT_LEARN_DATA=str(data),
    )
    assert told.endswith("Finished all configurations\n")
    # All methods in turn, in the order in which it runs them; ours and D-MF from our files.
    methods = re.findall(r"Running simulation for (\S.*) \(PID", told)
    assert methods[-1] == "OPTIMAL_DL_POSTAVG"
    assert "OPTIMAL_LOCAL" in methods
    part = told[told.index("Running simulation for OPTIMAL_DL_POSTAVG") :]
    (square,) = re.findall(r"sens²\(C_OPTIMAL_DL_POSTAVG\) = (\S+)", part)
    assert float(square) == pytest.approx(how["trainer_sensitivity"] ** 2, rel=1e-9)
    # The standard deviation it prints times the batch size is the design's, for the sum.
    (printed,) = re.findall(r"Noise std: (\S+)", part)
    batch = RECORDS * 4 // 5 // 15 // BATCHES
    found = calibrate(design.problem)
    assert float(printed) * batch == pytest.approx(found.noise_stddev * how["trainer_sensitivity"])
    # And the noise of all nodes at every two steps.
    kept = [np.load(folder / f"noise-{15 * (len(methods) - 1) + u}.npy") for u in range(15)]
    assert kept[0].shape == (steps, 9 * 64 + 65)
    assert not (folder / f"noise-{15 * len(methods)}.npy").exists()
    check_noise(designed_covariance(design) / batch**2, np.hstack(kept))
    lines = table_of_results.read_text("utf-8").splitlines()
    assert sum("OPTIMAL_DL_POSTAVG" in line for line in lines) == 15 * steps
    trainer_row(
        "MFDL",
        packages=("torch", "opacus", "numpy"),
        works=[
            "its own training command to the end, with the C of `export --to mfdl`",
            "covariance of its noise at every two steps",
            "its printed standard deviation and sensitivity",
        ],
        refuses=["nothing: it is left alone, and one reset is all it may be asked for"],
        cost="its own",
    )


# --- WhisperDSGD ----------------------------------------------------------------------------------

WITH_DESIGN = """
def imported(module):
    import numpy
    make, step, used = module.get_aggregator, module.Client.step, []
    def get_aggregator(**how):
        aggregator = make(**how)
        numpy.save("theirs.npy", aggregator.dp_noise_generator.noise_params)
        exec(pathlib.Path("lines.py").read_text(), {"aggregator": aggregator})
        return aggregator
    def keep(self, dp_noise=None):
        used.append(dp_noise.numpy())
        numpy.save("used.npy", used)
        return step(self, dp_noise)
    module.get_aggregator, module.Client.step = get_aggregator, keep
"""
NODES, ROUNDS = 5, 100  # those of the guide


def test_whisper_dsgd_trains_to_the_end_with_our_noise(tmp_path: Path) -> None:
    pytest.importorskip("igraph", reason="WhisperDSGD needs igraph")
    folder = shutil.copytree(clone("WhisperDSGD"), tmp_path / "trainer")
    problem = nd.load("problems/examples/space-with-privacy.toml")
    design = nd.solve(problem).design
    nd.export(design, to="whisper-dsgd", path=folder / "path-whisper.npz")
    with np.load(folder / "path-whisper.npz", allow_pickle=False) as stored:
        designed = stored["covariance_matrix"]
        facts = json.loads(str(stored["metadata"]))
    # Its data: LIBSVM's a9a, split by its own script.
    raw = folder / "data" / "a9a" / "raw_data"
    raw.mkdir()
    rng = np.random.default_rng(0)
    for name, records in (("a9a.txt", 200), ("a9a_t.txt", 100)):
        ones = [sorted(rng.choice(123, size=14, replace=False) + 1) for _ in range(records)]
        lines = [f"{1 if row[0] < 9 else -1} {' '.join(f'{i}:1' for i in row)}" for row in ones]
        (raw / name).write_text("\n".join(lines) + "\n", encoding="ascii")
    run(f"generate_data.py --n_tasks {NODES} --seed 12345", raw.parent)
    # The lines of the guide, run where it makes its aggregator.
    text = examples("docs/guides/other-trainers.md", "WhisperDSGD", "python")
    (folder / "lines.py").write_text(text, encoding="utf-8")
    command = f"train.py a9a --n_rounds {ROUNDS} --aggregator_type decentralized --log_freq 50"
    command += f" --dp_mechanism ldp --epsilon 5 --delta 1e-5 --norm_clip {facts['clip']} --bz 8"
    command += " --connectivity 1.0 --lr 0.01 --device cpu --optimizer sgd --logs_dir logs/run"
    told = run(
        f"{command} --seed 12345 --verbose 1", folder, module="utils.utils", hook=WITH_DESIGN
    )
    assert f"current round: {ROUNDS} | decentralized" in told
    assert f"Global.. {ROUNDS}" in told
    # Noise of all nodes and rounds, as it was added: that of the design, anew in every round.
    used = np.load(folder / "used.npy").reshape(ROUNDS, NODES, -1).astype(np.float64)
    check_noise(designed, np.concatenate([*used], axis=1))
    both = np.concatenate([np.concatenate([*half], axis=1) for half in (used[::2], used[1::2])])
    check_noise(np.kron(np.eye(2), designed), both)
    # Its own accountant asks at least as much of noise that is each node's own.
    theirs = np.load(folder / "theirs.npy")
    np.testing.assert_allclose(theirs, theirs[0, 0] * np.eye(NODES))
    independent = calibrate(design.problem).noise_stddev ** 2
    assert theirs[0, 0] >= independent
    trainer_row(
        "WhisperDSGD",
        packages=("torch", "numpy"),
        works=[
            "its own data script and training command to the end, with the covariance and W of "
            "`export --to whisper-dsgd`",
            "covariance of the noise that nodes add, fresh in every round",
        ],
        refuses=["designs for fewer participations than every round, by the export"],
        cost="its own",
    )
