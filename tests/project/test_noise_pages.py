"""The examples of pages about noise that need no second node are run, and say what they say."""

from __future__ import annotations

import ast
import queue
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisedesign.design.solve import solve
from noisedesign.noise.filters import Fresh
from noisedesign.tasks.deploy import deploy
from tests.support import private_problems
from tests.support.lattice_plans import plan_with
from tests.support.pages import examples

LOOP = "docs/guides/noise-in-my-own-loop.md"


def test_drawing_noise_on_a_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOISEDESIGN_RECORDS", str(tmp_path / "elsewhere"))
    exec(examples(LOOP), {})
    told = [line for line in examples(LOOP, language="text").splitlines() if line]
    assert capsys.readouterr().out.splitlines() == told
    written = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    # The record has a log beside it as long as its source is there.
    beside = {name for name in written if name.startswith("alice.sqlite3")}
    assert written.keys() == {"alice.plan", "alice.secret"} | beside
    assert "alice.sqlite3" in beside
    assert written["alice.plan"] < 2.5e3


def test_the_ledger() -> None:
    """Every expression with a number behind it is that number, to the digits shown."""
    pytest.importorskip("dp_accounting", reason="dp-accounting: .[ledger] brings it")
    code, compared = examples("docs/guides/ledger.md"), 0
    scope: dict[str, Any] = {}
    lines = code.splitlines()
    for node in ast.parse(code).body:
        source = ast.unparse(node)
        said = re.search(r"# ([0-9.]+)$", lines[(node.end_lineno or 1) - 1])
        if isinstance(node, ast.Expr) and said:
            found = eval(source, scope)
            digits = len(said[1].partition(".")[2])
            assert f"{found:.{digits}f}" == said[1], source
            compared += 1
        else:
            exec(source, scope)
    assert compared == 9


def test_seeds_without_a_dealer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three nodes, each as the page has it; only the names of their files differ."""
    monkeypatch.setenv("NOISEDESIGN_RECORDS", str(tmp_path / "records.sqlite3"))
    design = solve(private_problems.path_of_seeds()).design
    assert design is not None
    made = deploy(design, tmp_path / "out")
    code = examples("docs/guides/seeds-without-a-dealer.md")
    boxes = [queue.SimpleQueue[bytes]() for _ in made]

    def node(u: int) -> Any:
        scope: dict[str, Any] = {
            "send": lambda receiver, message: boxes[receiver].put(message),
            "receive": lambda: boxes[u].get(timeout=30),
        }
        exec(code.replace("alice.plan", str(made[u].path)), scope)
        return scope["source"]

    with ThreadPoolExecutor(len(made)) as pool:
        drawn = [source.step(0, 200_000) for source in pool.map(node, range(len(made)))]
    stated = design.covariance * made[0].plan.claim.noise_stddev ** 2
    found = np.cov(drawn, bias=True)
    error = np.abs(found - stated) / np.sqrt(np.outer(stated.diagonal(), stated.diagonal()))
    assert error.max() < 6 / np.sqrt(200_000) * np.sqrt(2)


def test_noise_without_floating_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop of the page sends integers at every step, and gradients come out of them again
    where noise is small."""
    monkeypatch.setenv("NOISEDESIGN_RECORDS", str(tmp_path / "records"))
    plan = plan_with(Fresh(), mu=1e6, noise_stddev=1e-6, coefficient=1e-6)
    gradients = np.full((3, 4), 0.25)
    seen: list[Any] = []
    code = examples("docs/guides/noise-in-integers.md").replace(
        "update =", "update = seen[len(seen):] ="
    )
    exec(code, {"plan": plan, "gradients_of": lambda t: [gradients * (t + 1) / 9], "seen": seen})
    assert len(seen) == plan.horizon
    for t, update in enumerate(seen):
        assert np.abs(update - 0.75 * (t + 1) / 9).max() < 1e-5
