"""DECOR: two numbers and a program that keeps the trainer to them.

The trainer's part is played as its own source plays it (:mod:`tests.support.decor_trainer`); a
folder with the trainer itself is used where ``NOISEDESIGN_DECOR`` names one.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.files.exports import takers
from tests.support import ROOT
from tests.support.clones import clone
from tests.support.made_designs import with_matrix
from tests.support.small_designs import PATH_3, TARGET, space_design
from tests.support.trainer_rows import trainer_row

LAPLACIAN = np.array([[1.0, -1, 0], [-1, 2, -1], [0, -1, 1]])
STEPS = 4


def decor_design(*, times: int = STEPS, adjacency: str = "replace") -> Any:
    """s I + c L on a path of three, its largest [R^-1]_ii one: mu from s, c by hand below."""
    covariance = np.eye(3) + 2.0 * LAPLACIAN
    covariance *= np.diagonal(np.linalg.inv(covariance)).max()
    target = replace(TARGET, steps=None, adjacency=adjacency)
    scheme = nd.participation.FixedEpoch(epochs=times, separation=STEPS // times)
    design = space_design(
        privacy=target, participation=scheme, structure=nd.SpaceStructure(kind="decor")
    )
    return with_matrix(design, matrix=covariance)


def exported(design: Any, folder: Path) -> tuple[dict[str, Any], Path]:
    path, program = nd.export(design, to="decor", path=folder / "numbers.json")
    assert program == folder / "numbers.py"
    return json.loads(path.read_text("utf-8")), program


# --- the numbers -----------------------------------------------------------------------------


@pytest.mark.parametrize(("adjacency", "move"), [("replace", 2.0), ("zero-out", 1.0)])
@pytest.mark.parametrize("times", [1, 2, 4])
def test_the_numbers_give_the_privacy_that_is_stated(
    tmp_path: Path, times: int, adjacency: str, move: float
) -> None:
    """R of the numbers, as the trainer's accountant writes it, against every record by brute force:
    of all moves of one node in ``times`` of the steps, the largest distance of the two outputs."""
    found, _ = exported(decor_design(times=times, adjacency=adjacency), tmp_path)
    own, shared = found["sigma_of_sum"], found["sigma_cor_of_sum"]
    assert (shared / own) ** 2 == pytest.approx(2.0)
    covariance = own**2 * np.eye(3) + shared**2 * LAPLACIAN
    joint = np.kron(np.eye(STEPS), covariance)  # drawn afresh at every step
    squared = 0.0
    for node in range(3):
        for steps in itertools.combinations(range(STEPS), times):
            change = np.zeros((STEPS, 3))
            change[list(steps), node] = move * TARGET.clip
            squared = max(squared, change.ravel() @ np.linalg.solve(joint, change.ravel()))
    assert squared**0.5 == pytest.approx(found["mu"], rel=1e-9)
    assert nd.privacy.delta_of(mu=squared**0.5, epsilon=found["epsilon"]) == pytest.approx(
        TARGET.delta
    )
    assert (found["horizon"], found["max_participations"]) == (STEPS, times)
    assert found["adjacency"] == adjacency
    assert found["edges"] == [[0, 1], [1, 2]]
    np.testing.assert_array_equal(found["mixing"], PATH_3)


def test_noise_drawn_once_for_all_steps_protects_no_more_than_own_noise() -> None:
    """Why the trainer is not left alone: over T steps one record, moved up in one and down in the
    next, sees own noise only, whatever the edges add."""
    own, shared = 0.7, 5.0
    once = own**2 * np.eye(6) + shared**2 * np.kron(np.ones((2, 2)), LAPLACIAN)
    change = np.array([1.0, 0, 0, -1, 0, 0])
    assert change @ np.linalg.solve(once, change) == pytest.approx(2 / own**2)
    afresh = np.kron(np.eye(2), own**2 * np.eye(3) + shared**2 * LAPLACIAN)
    assert change @ np.linalg.solve(afresh, change) < 0.4 * 2 / own**2


def test_solved_designs_are_taken(tmp_path: Path) -> None:
    graph = nd.build_graph(kind="ring", nodes=5)
    for kind in ("decor", "independent"):
        problem = nd.SpaceProblem.from_graph(graph, structure=nd.SpaceStructure(kind=kind))
        design = nd.solve(problem).design
        assert design is not None
        assert "decor" in takers(design)
        (tmp_path / kind).mkdir()
        found, _ = exported(design, tmp_path / kind)
        own, shared = found["sigma_of_sum"], found["sigma_cor_of_sum"]
        made = own**2 * np.eye(5) + shared**2 * (3 * np.eye(5) - problem.mixing * 3)
        np.testing.assert_allclose(made, design.covariance, rtol=1e-9, atol=1e-12)
        assert (shared == 0) == (kind == "independent")


def test_noise_of_more_than_two_numbers_is_refused(tmp_path: Path) -> None:
    problem = nd.SpaceProblem.from_graph(nd.build_graph(kind="path", nodes=4))
    design = nd.solve(problem).design
    assert design is not None
    assert "decor" not in takers(design)
    with pytest.raises(InputError, match="noise of two numbers") as caught:
        exported(design, tmp_path)
    assert 'space = "decor"' in caught.value.remedy
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match=r"output: expected a name in \.json"):
        nd.export(decor_design(), to="decor", path=tmp_path / "numbers.py")


def test_an_export_is_replaced_by_the_next(tmp_path: Path) -> None:
    first, _ = exported(decor_design(), tmp_path)
    second, program = exported(decor_design(times=2), tmp_path)
    assert first["max_participations"] != second["max_participations"]
    program.write_text("print('mine')\n")
    with pytest.raises(InputError, match="output: expected a new file"):
        exported(decor_design(), tmp_path)


# --- the program -----------------------------------------------------------------------------


def loaded(program: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("exported_program", program)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_program_needs_the_standard_library_alone(tmp_path: Path) -> None:
    _, program = exported(decor_design(), tmp_path)
    code = f"import sys; sys.argv = ['x']; import runpy; runpy.run_path({str(program)!r})"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_numbers_are_divided_where_the_mean_is_noised(tmp_path: Path) -> None:
    found, program = exported(decor_design(), tmp_path)
    module = loaded(program)
    for unit, batch, divided in (("example", 32, 32), ("example", None, 64), ("user", 32, 1)):
        given = ["--privacy", unit, *([] if batch is None else [f"--batch-size={batch}"])]
        words, told, size = module.arguments(given, found)
        last = dict(zip(words[len(given) :: 2], words[len(given) + 1 :: 2], strict=True))
        assert (told, size) == (unit, batch or 64)
        assert float(last["--sigma"]) == found["sigma_of_sum"] / divided
        assert float(last["--sigma-cor"]) == found["sigma_cor_of_sum"] / divided
        assert int(last["--num-iter"]) == STEPS - 1
        assert int(last["--num-nodes"]) == 3
        assert float(last["--gradient-clip"]) == TARGET.clip


@pytest.mark.parametrize("word", ["--sigma=0", "--sigma-cor", "--num-iter", "--gradient-clip=9"])
def test_what_the_design_says_nobody_else_says(tmp_path: Path, word: str) -> None:
    found, program = exported(decor_design(), tmp_path)
    with pytest.raises(SystemExit, match=r"said by the design"):
        loaded(program).arguments([word, "--privacy", "example"], found)


def test_participation_is_that_of_the_design(tmp_path: Path) -> None:
    """T = 4 and twice: two batches an epoch give two epochs; one gives four, three less."""
    found, program = exported(decor_design(times=2), tmp_path)
    require = loaded(program).require_participation

    def loader(examples: int, size: int) -> Any:
        return SimpleNamespace(dataset=range(examples), batch_size=size)

    for examples in (20, 25, 29, 30, 45):
        require(0, loader(examples, 10), found, 10)
    for examples in (10, 19):
        with pytest.raises(SystemExit, match=r"is in 4 of 4 steps, where the design is for 2"):
            require(0, loader(examples, 10), found, 10)
    with pytest.raises(SystemExit, match="the same at every step"):
        require(0, loader(9, 10), found, 10)
    with pytest.raises(SystemExit, match="the same at every step"):
        require(0, loader(30, 30), found, 10)


def started(program: Path, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(program), *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_program_says_what_it_lacks(tmp_path: Path) -> None:
    found, program = exported(decor_design(), tmp_path)
    words = ("--privacy", "example")
    assert "expected DECOR" in started(program, *words, folder=tmp_path).stderr
    assert started(program, folder=tmp_path).returncode == 2  # no --privacy
    twice = exported(decor_design(times=2), tmp_path)[1]
    assert "takes part in all 4 steps" in started(twice, "--privacy=user", folder=tmp_path).stderr
    (tmp_path / "numbers.json").write_text(json.dumps(found | {"to": "npy"}))
    assert "got another file" in started(program, *words, folder=tmp_path).stderr
    (tmp_path / "numbers.json").unlink()
    assert "No such file" in started(program, *words, folder=tmp_path).stderr
    unprotected = nd.export(space_design(), to="decor", path=tmp_path / "numbers.json")[1]
    assert "no privacy target" in started(unprotected, *words, folder=tmp_path).stderr


@pytest.fixture
def trainer(tmp_path: Path) -> Path:
    pytest.importorskip("torch", reason="DECOR is a program of torch, which is not installed")
    return shutil.copytree(ROOT / "tests" / "support" / "decor_trainer", tmp_path / "trainer")


DIMENSION = 40_000


def drawn(program: Path, *words: str, folder: Path) -> np.ndarray:
    made = started(program, *words, f"--dimension={DIMENSION}", "--examples=70", folder=folder)
    assert made.returncode == 0, made.stderr
    noise: np.ndarray = np.load(folder / "noise.npy").astype(np.float64)
    return noise


@pytest.mark.parametrize(("unit", "divided"), [("example", 16), ("user", 1)])
def test_the_trainer_draws_the_designed_noise(
    trainer: Path, tmp_path: Path, unit: str, divided: int
) -> None:
    design = decor_design()
    found, program = exported(design, tmp_path)
    noise = drawn(program, f"--privacy={unit}", "--batch-size=16", "--seed=5", folder=trainer)
    assert noise.shape == (STEPS, 3, DIMENSION)  # and no step more
    covariance = found["noise_stddev"] ** 2 * design.covariance / divided**2
    joint = np.kron(np.eye(STEPS), covariance)
    flat = noise.reshape(STEPS * 3, DIMENSION)
    variances = np.diagonal(joint)
    spread = np.sqrt((joint**2 + np.outer(variances, variances)) / DIMENSION)
    assert (np.abs(flat @ flat.T / DIMENSION - joint) < 5 * spread).all()
    if unit == "example":
        assert (np.load(trainer / "sizes.npy") == 16).all()  # 70 leave a batch of 6, passed over
    # Left alone, the trainer's steps share the noise of edges, and there is one step more.
    words = [f"--num-nodes=3 --num-iter={STEPS} --topology-name=centralized --privacy={unit}"]
    words += [f"--sigma={found['sigma_of_sum']} --sigma-cor={found['sigma_cor_of_sum']}"]
    words += [f"--gradient-clip={TARGET.clip} --batch-size=16"]
    alone = drawn(trainer / "train.py", *" ".join(words).split(), folder=trainer)
    assert len(alone) == STEPS + 1
    assert (alone[0] * alone[1]).mean() > 0.1 * found["sigma_cor_of_sum"] ** 2 / 9


def test_another_run_has_other_noise(trainer: Path, tmp_path: Path) -> None:
    _, program = exported(decor_design(), tmp_path)
    words = ("--privacy=user", "--batch-size=16")
    one, two = (drawn(program, *words, folder=trainer) for _ in range(2))
    assert (one != two).mean() > 0.99


def test_too_few_batches_stop_the_trainer(trainer: Path, tmp_path: Path) -> None:
    _, program = exported(decor_design(times=2), tmp_path)
    words = ("--privacy=example", "--batch-size=40", "--dimension=3", "--examples=70")
    done = started(program, *words, folder=trainer)
    assert "node 0 has 1 batches" in done.stderr
    assert not (trainer / "noise.npy").exists()


def test_the_trainer_itself_runs_to_the_end(tmp_path: Path) -> None:
    pytest.importorskip("torchvision", reason="DECOR needs torchvision, which is not installed")
    folder = shutil.copytree(clone("DECOR"), tmp_path / "trainer")
    _, program = exported(decor_design(), tmp_path)
    words = "--dataset libsvm --model libsvm_model --loss BCELoss --criterion libsvm_topk"
    words += " --num-labels 2 --dirichlet-alpha 10 --batch-size 64 --learning-rate 0.1"
    words += " --privacy example --device cpu --evaluation-delta 1 --metric Loss"
    done = started(program, *words.split(), folder=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Mean Loss (step ") == STEPS
    trainer_row(
        "DECOR",
        packages=("torch", "torchvision", "numpy"),
        works=[
            "its own training to the end, by the program of `export --to decor`",
            "noise of edges drawn afresh at every step",
        ],
        refuses=["what the design says, said again", "too few batches"],
        cost="its own",
    )
