"""The scripts of benchmarks: a peer is judged as we are, and what is counted is what there is."""

from __future__ import annotations

import csv
import stat
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.base.device import CPU
from noisedesign.design import backends
from noisedesign.families.disjoint import solver
from noisedesign.families.disjoint.solver import active_caps, diagonal, smoothed
from noisedesign.surveys.check_results import COLUMNS, MISSING, VERIFIED, VERSION
from tests.support import ROOT
from tests.support.array_devices import NEEDS_NUMPY_2, STRICT, strict_on_host

JAX = "config = type('config', (), {'update': lambda *_: None})\nfrom . import numpy"
DENSE = """
    import numpy as np

    class Strategy(np.ndarray):
        def block_until_ready(self): pass

    def optimize(n, *, epochs=1, A=None):
        if A is not None and A.shape != (n, n):
            raise SystemExit(f"a factor of shape {A.shape}")
        return (2 * np.eye(n) / epochs**0.5).view(Strategy)  # twice as sensitive as allowed
"""


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The scripts, which are beside the package and not in it."""
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import collection, gpu, peers

    return SimpleNamespace(collection=collection, gpu=gpu, peers=peers)


@pytest.fixture
def rival(tmp_path: Path) -> str:
    """A Python whose jax_privacy answers with independent noise."""
    home = tmp_path / "rival"
    for name, text in {
        "jax/__init__.py": JAX,
        "jax/numpy.py": "from numpy import asarray",
        "jax_privacy/__init__.py": "",
        "jax_privacy/matrix_factorization/__init__.py": "",
        "jax_privacy/matrix_factorization/dense.py": DENSE,
        "jax-9.9.dist-info/METADATA": "Name: jax\nVersion: 9.9\n",
        "jax_privacy-8.8.dist-info/METADATA": "Name: jax_privacy\nVersion: 8.8\n",
    }.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    script = home / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{home}" exec "{sys.executable}" "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return str(script)


def test_a_peer_is_judged_by_what_its_strategy_is_worth(benchmarks: Any, rival: str) -> None:
    """Independent noise costs k tr(H), however the strategy it is written as is scaled."""
    for instance in benchmarks.peers.instances(quick=True):
        row = benchmarks.peers.against_rival(instance, rival, runs=1)
        problem = instance.problem
        optimum = nd.solve(problem).design.objective
        independent = problem.participation.epochs * np.trace(problem.gram)
        assert row["rival_gap"] == pytest.approx(independent / optimum - 1, rel=1e-5)
        assert row["gap"] <= 1e-6
        assert row["times_faster"] == pytest.approx(row["rival_seconds"] / row["seconds"])
        assert row["rival"] == "jax_privacy 8.8, jax 9.9"


def test_a_peer_that_is_not_there(benchmarks: Any) -> None:
    rows, reason = benchmarks.peers.compare(sys.executable, quick=True, runs=1)
    assert rows == []
    assert reason.startswith("Not compared: jax_privacy does not run in ")


def test_the_factor_of_a_network_is_one_of_its_workload(benchmarks: Any) -> None:
    (network,) = [i for i in benchmarks.peers.instances(quick=True) if i.factor is not None]
    mixing = network.problem.mixing
    assert mixing is not None
    steps = network.problem.participation.horizon
    powers = [np.linalg.matrix_power(mixing, age + 1) for age in range(steps)]
    rows = [
        np.stack([powers[t - s].ravel() if s <= t else 0 * mixing.ravel() for s in range(steps)], 1)
        for t in range(steps)
    ]
    stacked = np.concatenate(rows)
    np.testing.assert_allclose(network.factor.T @ network.factor, stacked.T @ stacked, atol=1e-9)


@NEEDS_NUMPY_2
def test_a_device_beside_the_cpu(
    benchmarks: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the arrays of a library that is strict, in the place of a device."""
    gpu = benchmarks.gpu
    for module in (gpu, backends, solver):
        monkeypatch.setattr(module, "device_of", lambda name: CPU if name == "cpu" else STRICT)
    for module in (gpu, diagonal, active_caps, smoothed):
        monkeypatch.setattr(module, "on_host", strict_on_host)
    gpu.main(["--nodes", "8", "--steps", "6", "--capped", "9", "--floored", "7", "--most", "8"])
    shown = capsys.readouterr().out
    assert f"cuda:1 (array_api_strict {STRICT.versions['array_api_strict']}) beside" in shown
    assert shown.count("optimal") >= 1
    assert [shown.count(of) for of in ("the solve", "one eigh", "caps of")] == [3, 3, 3]


@NEEDS_NUMPY_2
def test_answers_that_are_apart_are_no_ratio(
    benchmarks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, honest = benchmarks.gpu, nd.solve

    def solved(problem: Any, *, gap: float, device: str = "cpu") -> Any:
        other = gpu.whisper(8) if device == "cpu" else problem
        return honest(other, gap=gap)

    monkeypatch.setattr(gpu.nd, "solve", solved)
    with pytest.raises(RuntimeError, match="apart"):
        gpu.row("", 9, gpu.whisper(9), device=STRICT, gap=1e-9, most=9)


def test_a_device_that_is_not_there(
    benchmarks: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for library in ("torch", "cupy"):
        monkeypatch.setitem(sys.modules, library, None)
    benchmarks.gpu.main([])
    out, err = capsys.readouterr()
    assert out == ""
    assert "torch is not installed; cupy is not installed" in err


def test_the_tables_of_judged_runs(
    benchmarks: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, picture = tmp_path / "v.csv", tmp_path / "picture.svg"
    arguments = ["--verdicts", str(path), "-o", str(picture)]
    blank = dict.fromkeys(COLUMNS, "") | {"clock": "cpu", "holds": "optimum"}
    rows = [
        ("p", "a", 1.0, VERIFIED, 1e-8, ""),
        ("p", "a", 0.5, VERIFIED, 5e-4, ""),
        ("p", "b", 6.0, VERIFIED, 1e-8, ""),
        ("q", "a", 2.0, VERIFIED, 5e-4, ""),
        ("q", "b", 5.0, MISSING, "", "takes 12.5 GiB where 3 are"),
        ("r", "b", 5.0, MISSING, "", "takes 100 GiB where 3 are"),
    ]
    names = ("problem", "solver", "seconds", "status", "excess", "reason")
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ("verdict_format", *COLUMNS))
        writer.writeheader()
        for row in rows:
            values = blank | dict(zip(names, row, strict=True)) | {"verdict_format": VERSION}
            writer.writerow(values)
    benchmarks.collection.main(arguments)
    text = capsys.readouterr().out
    assert "| problem | a | b |\n| --- | --- | --- |\n| p | 1 | late |\n" in text
    assert "| q | to 5e-04 | none |\n| r | none | none |\n" in text
    assert "| b | 2 | takes # GiB where # are |" in text
    assert "| a | 1e-06 | 3 | 1 | 3 | 0 |" in text
    assert picture.read_text(encoding="utf-8").startswith("<?xml")
    path.write_text(path.read_text().replace(",cpu,", ",wall,"))
    with pytest.raises(InputError, match=r"^verdicts: expected runs timed by CPU seconds"):
        benchmarks.collection.main(arguments)


# --- decompositions counted -----------------------------------------------------------------------

MOST = 12
"""Decompositions that a gap of 1e-9 may take."""
MOST_WITH_FLOORS = 160
"""The same with floors."""
SMALL = 250
"""Steps up to which a problem is solved here; others of their families are as well."""


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A script, beside the package and not in it."""
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import counts

    return counts


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_no_shipped_problem_needs_many(every: bool, counts: Any) -> None:
    """With limits of every kind and without, and in the slow test all that are small."""
    limited = {
        "whisper/florentine-floored": "floor",
        "directed/ring-8-one-way": "cap",
        "collection/erdos-renyi-25-consensus-6": "cap",
        "collection/small-world-30-floored": "floor",
        "collection/star-30-mean-model-8": "cap",
        "collection/torus-5x6-capped-floored": "cap and floor",
    }
    structured = {"space-structures/florentine-decor", "observers/path-5-both-ends"}
    complete = {
        f"collection/{one.stem}" for one in (counts.PROBLEMS / "collection").glob("complete-*")
    }
    assert len(complete) >= 2
    few = {"whisper/florentine", *complete}
    named = {*limited, *few, "prefix/prefix-20x19"}
    problems = counts.shipped(None if every else named | structured)
    assert named <= problems.keys()
    assert not structured & problems.keys()
    for name, problem in problems.items():
        if len(problem.gram) > SMALL:
            continue
        if not (every or name in limited or name in few):
            continue
        row = counts.row_of(name, problem)
        assert row["status, gap 1e-09"] == row["status, gap 1e-06"] == "optimal"
        most = MOST_WITH_FLOORS if "floor" in row["limits"] else MOST
        assert row["eigh, gap 1e-06"] <= row["eigh, gap 1e-09"] <= most
        assert row["limits"] == limited.get(name, "cap" if "capped" in name else "none")
        singular = name in ("directed/ring-8-one-way", "whisper/erdos-renyi-20-p10-capped")
        # W of a complete graph has rank 1; that of a star takes its hub against its leaves to 0.
        singular |= name.startswith(("collection/complete-", "collection/star-"))
        assert row["W or H"] == ("singular" if singular else "regular")
        if problem.axes == "space":
            assert row["k"] == 1


def test_the_largest_of_each_group(counts: Any) -> None:
    def row(limits: str, coarse: int, fine: int) -> dict[str, object]:
        return {
            "design": "space",
            "W or H": "regular",
            "limits": limits,
            "k": 1,
            "eigh, gap 1e-06": coarse,
            "eigh, gap 1e-09": fine,
        }

    found = counts.largest([row("none", 3, 9), row("cap", 5, 6), row("none", 4, 5)])
    assert found == [row("cap", 5, 6) | {"problems": 1}, row("none", 4, 9) | {"problems": 2}]


# --- noise of a node ------------------------------------------------------------------------------


def test_noise_of_a_node_beside_plain_normals(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row a kind and precision, and the draws behind a number counted."""
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import noise

    rows = noise.table(size=50, steps=5, runs=1)
    assert [row["precision"] for row in rows] == ["float32", "float64"] * 6
    counted = 0

    def fill(_: Any, out: np.ndarray, *, start: int = 0) -> None:
        nonlocal counted
        counted += len(out)
        out[:] = 1.0

    monkeypatch.setattr("noisedesign.noise.normals.Normals.fill", fill)
    for row in rows[::2]:
        plan, draws = noise.plans(5)[row["noise"]]
        counted = 0
        noise.run_of(plan, np.empty(50))
        assert counted == 50 * plan.horizon * draws
        assert row["draws"] == draws
        assert row["a_draw"] * draws == pytest.approx(row["over_plain"])
        assert row["over_plain"] > 0


def test_the_dense_c_is_that_of_prefix_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import noise

    root = np.linalg.inv(noise.square_root(12))
    np.testing.assert_allclose(root @ root, np.tri(12), atol=1e-12)


def test_a_large_model_beside_plain_normals(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a machine without a device; three of four bands are kept."""
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import device

    monkeypatch.setitem(sys.modules, "torch", None)
    device.main(["--size", "300000", "--runs", "1"])
    told = capsys.readouterr().out
    assert "torch is not installed: its normals were not measured" in told
    (row,) = [line.split() for line in told.splitlines() if line.startswith("a step of four")]
    assert float(row[-2]) > 0
    assert 3 <= float(row[-1]) < 6
