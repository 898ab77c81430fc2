"""What an extra brings is asked for by its name, before anything is done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import noisedesign as nd
from noisedesign.base import extras, workers
from noisedesign.base.checks import InputError
from noisedesign.base.cluster import Where
from noisedesign.distributed import cluster, graph
from noisedesign.distributed.work import Asked
from noisedesign.system import datasets
from tests.support.command_line import call


def design() -> nd.Design:
    found = nd.solve(nd.SpaceProblem.from_graph(nd.build_graph("path", nodes=3))).design
    assert found is not None
    return found


USES: dict[str, Callable[[Path], object]] = {
    "distributed": lambda folder: cluster.run_on_cluster(
        Asked(folder, folder), parts=2, address="tcp://127.0.0.1:1", silence=1.0, tell=print
    ),
    "jinja2": lambda folder: nd.report(design(), path=folder / "page.html"),
    "joblib": lambda folder: list(workers.in_processes(str, {"a": 1}, jobs=2)),
    "matplotlib": lambda folder: nd.plot(design(), path=folder / "picture.svg"),
    "pooch": lambda folder: datasets.ego_facebook(414),
    "pyarrow": lambda folder: graph.folder_at(folder),
    "safetensors": lambda folder: nd.export(
        design(), to="safetensors", path=folder / "x.safetensors", calibrated=False
    ),
}


@pytest.mark.parametrize("package", extras.EXTRAS)
def test_a_missing_package_is_asked_for_by_its_extra(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == package else object())
    monkeypatch.setenv("NOISEDESIGN_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    told = rf"expected the package {package}, got none.*noisedesign\[{extras.EXTRAS[package]}\]"
    with pytest.raises(InputError, match=told):
        USES[package](tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command",
    [
        ("compare", "whisper/ring-20", "--plot", "profile.svg"),
        ("demo", "-o", "shown"),
        ("report", "missing.npz", "-o", "page.html"),
    ],
)
def test_a_command_asks_before_the_work(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def solved(*_: object, **__: object) -> None:
        raise AssertionError("solved before a picture was known to be possible")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    monkeypatch.setattr("noisedesign.pages.demo.solve", solved)
    monkeypatch.setattr("noisedesign.surveys.compare.compare", solved)
    found = call(*command)
    assert found.code == 2
    assert "noisedesign[p" in found.err
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_asks_for_dask_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"package distributed, got none.*noisedesign\[dask\]"):
        Where(cluster="tcp://127.0.0.1:1")
