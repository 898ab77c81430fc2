"""Data sets: local copies first, one member of one archive otherwise, always checked."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import sys
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import networkx as nx
import numpy as np
import pooch
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.system import datasets
from noisedesign.system.datasets import DataFile, data_folder, ego_facebook, peertube

TRIANGLE = b"1 2\n2 1\n2 3\n3 1\n"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, no data folder, and no way to the network."""
    folder = tmp_path / "cache"

    def offline(*args: object, **kwargs: object) -> str:
        raise ConnectionError("no network in tests")

    monkeypatch.delenv("NOISEDESIGN_DATA", raising=False)
    monkeypatch.setattr(pooch, "os_cache", lambda project: folder / project)
    monkeypatch.setattr(pooch, "retrieve", offline)
    return folder / "noisedesign"


@pytest.fixture
def triangle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the checksum of ego 414 be that of a triangle."""
    digest = hashlib.sha256(TRIANGLE).hexdigest()
    monkeypatch.setitem(datasets.EGO_FACEBOOK_SHA256, 414, digest)


def serve(monkeypatch: pytest.MonkeyPatch, members: dict[str, bytes] | bytes) -> list[str]:
    """Make pooch deliver an archive; returns the addresses asked for."""
    asked: list[str] = []

    def retrieve(url: str, known_hash: str | None, path: str) -> str:
        asked.append(url)
        target = Path(path) / "facebook.tar.gz"
        if isinstance(members, bytes):
            target.write_bytes(members)
        else:
            with tarfile.open(target, "w:gz") as tar:
                for name, content in members.items():
                    info = tarfile.TarInfo(name)
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
        return str(target)

    monkeypatch.setattr(pooch, "retrieve", retrieve)
    return asked


# --- the real files ------------------------------------------------------------------------------


def real_folder() -> Path:
    folder = os.environ.get("NOISEDESIGN_DATA")
    if not folder or not (Path(folder) / "ego-facebook").is_dir():
        pytest.skip("NOISEDESIGN_DATA names no folder with ego-facebook")
    return Path(folder)


@pytest.mark.parametrize(
    ("ego", "nodes", "edges"), [(0, 324, 2514), (107, 1034, 26749), (414, 148, 1692)]
)
def test_real_graphs(ego: int, nodes: int, edges: int) -> None:
    folder = real_folder()
    graph = ego_facebook(ego)
    assert (len(graph), graph.number_of_edges()) == (nodes, edges)
    assert list(graph.nodes) == sorted(graph.nodes)
    # A second reader: networkx's own.
    whole = nx.read_edgelist(folder / "ego-facebook" / f"{ego}.edges", nodetype=int)
    largest = whole.subgraph(max(nx.connected_components(whole), key=len))
    assert {frozenset(e) for e in graph.edges} == {frozenset(e) for e in largest.edges}


def test_an_altered_copy_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = real_folder() / "ego-facebook" / "414.edges"
    copy = tmp_path / "ego-facebook" / "414.edges"
    copy.parent.mkdir()
    shutil.copyfile(source, copy)
    copy.chmod(0o644)
    monkeypatch.setenv("NOISEDESIGN_DATA", str(tmp_path))
    assert len(ego_facebook(414)) == 148
    text = bytearray(copy.read_bytes())
    text[0] = ord("1") if text[0] != ord("1") else ord("2")
    copy.write_bytes(text)
    with pytest.raises(InputError, match=r"^graph\.ego: .*414\.edges.*altered"):
        ego_facebook(414)


def test_one_graph_is_not_taken_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, triangle: None
) -> None:
    """Unaltered, and under another's name."""
    copy = tmp_path / "ego-facebook" / "107.edges"
    copy.parent.mkdir()
    copy.write_bytes(TRIANGLE)
    monkeypatch.setenv("NOISEDESIGN_DATA", str(tmp_path))
    with pytest.raises(InputError, match=r"^graph\.ego: .*107\.edges.*altered"):
        ego_facebook(107)
    assert len(ego_facebook_as(copy, 414)) == 3


def ego_facebook_as(copy: Path, ego: int) -> nx.Graph:
    copy.rename(copy.with_name(f"{ego}.edges"))
    return ego_facebook(ego)


# --- everything else, without them ---------------------------------------------------------------


@pytest.mark.parametrize("ego", [1, 414.0, "414", True, False, None])
def test_unknown_egos(ego: object) -> None:
    with pytest.raises(InputError, match=r"^graph\.ego: expected one of 0, 107, 414, got"):
        ego_facebook(ego)  # type: ignore[arg-type]


def test_offline_without_data_names_the_remedy(cache: Path) -> None:
    with pytest.raises(InputError) as caught:
        ego_facebook(414)
    assert "NOISEDESIGN_DATA" in caught.value.remedy
    assert "facebook/414.edges" in caught.value.remedy
    assert f"sha256 {datasets.EGO_FACEBOOK_SHA256[414]}" in caught.value.remedy
    assert "https://snap.stanford.edu/data/facebook.tar.gz" in str(caught.value)
    assert list(cache.rglob("*.edges")) == []


@pytest.mark.usefixtures("triangle")
def test_download_keeps_one_member_and_is_done_once(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = {"../evil": b"x", "facebook/0.edges": b"1 2\n", "facebook/414.edges": TRIANGLE}
    asked = serve(monkeypatch, members)
    assert list(ego_facebook(414).nodes) == [1, 2, 3]
    assert list(ego_facebook(414).nodes) == [1, 2, 3]
    assert asked == ["https://snap.stanford.edu/data/facebook.tar.gz"]
    kept = [path for path in cache.parent.parent.rglob("*") if path.is_file()]
    assert kept == [cache / "ego-facebook" / "414.edges"]


@pytest.mark.usefixtures("triangle")
def test_the_named_folder_comes_before_the_cache(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, content in ((cache, b"altered"), (tmp_path / "data", TRIANGLE)):
        (folder / "ego-facebook").mkdir(parents=True)
        (folder / "ego-facebook" / "414.edges").write_bytes(content)
    with pytest.raises(InputError, match="altered"):
        ego_facebook(414)
    monkeypatch.setenv("NOISEDESIGN_DATA", str(tmp_path / "data"))
    assert len(ego_facebook(414)) == 3


@pytest.mark.parametrize(
    "archive",
    [b"", b"not a tar file", {"facebook/0.edges": b"1 2\n"}, {"facebook/414.edges": b"1 2\n"}],
    ids=["empty", "garbage", "member missing", "member altered"],
)
def test_a_bad_archive_is_refused_and_not_kept(
    cache: Path, monkeypatch: pytest.MonkeyPatch, archive: dict[str, bytes] | bytes
) -> None:
    serve(monkeypatch, archive)
    with pytest.raises(InputError, match=r"^graph\.ego: "):
        ego_facebook(414)
    assert [path for path in cache.rglob("*") if path.is_file()] == []


def test_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOISEDESIGN_DATA", raising=False)
    assert data_folder() is None
    monkeypatch.setenv("NOISEDESIGN_DATA", "")
    assert data_folder() is None
    monkeypatch.setenv("NOISEDESIGN_DATA", str(tmp_path))
    assert data_folder() == tmp_path
    monkeypatch.setenv("NOISEDESIGN_DATA", str(tmp_path / "none"))
    with pytest.raises(InputError, match="^NOISEDESIGN_DATA: expected an existing folder"):
        data_folder()


# --- other files ---------------------------------------------------------------------------------

A_FILE = DataFile(
    field="data",
    name="letters/abc.txt",
    sha256=hashlib.sha256(b"abc").hexdigest(),
    url="https://example.org/abc.zip",
    member="in/abc.txt",
)


@pytest.mark.parametrize("packed", [True, False], ids=["zip", "plain"])
@pytest.mark.parametrize("content", [b"abc", b"abd"])
def test_other_downloads(
    content: bytes, packed: bool, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member of a zip archive, and a file of its own: kept only if it is the right one."""
    file = A_FILE if packed else replace(A_FILE, member="", url="https://example.org/abc.txt")
    asked = []

    def retrieve(url: str, known_hash: str | None, path: str) -> str:
        asked.append(url)
        target = Path(path) / "fetched"
        if packed:
            with zipfile.ZipFile(target, "w") as archive:
                archive.writestr("in/abc.txt", content)
                archive.writestr("../evil", b"x")
        else:
            target.write_bytes(content)
        return str(target)

    monkeypatch.setattr(pooch, "retrieve", retrieve)
    if content != b"abc":
        with pytest.raises(InputError, match=r"^data: .*altered"):
            file.read()
        assert [path for path in cache.rglob("*") if path.is_file()] == []
        return
    assert file.read() == file.read() == b"abc"
    assert asked == [file.url]
    assert [path for path in cache.rglob("*") if path.is_file()] == [cache / file.name]


# --- PeerTube, from a file or through a package that is not a dependency -------------------------


class _FakeError(Exception):
    """Base of the errors of the package."""


class _FakeCacheError(_FakeError):
    """No copy yet."""


class _FakeDownloadError(_FakeError):
    """No network."""


@pytest.fixture
def fedivertex(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A package ``fedivertex`` with one small graph, already in its cache."""
    package, exceptions = ModuleType("fedivertex"), ModuleType("fedivertex.exceptions")
    follows = nx.DiGraph([("b", "a"), ("a", "b"), ("a", "c"), ("c", "a"), ("c", "b"), ("a", "a")])
    follows.nodes["a"]["domain"] = "org"

    class GraphLoader:
        cached = True

        def __init__(self, light_version: bool = True, cache_only: bool = False) -> None:
            print("Cache found, checking for updates...")
            if cache_only and not self.cached:
                raise _FakeCacheError("No cache found")
            if not cache_only:
                package.downloads += 1

        def get_graph(self, software: str, graph_type: str, **options: object) -> nx.DiGraph:
            package.asked = (software, graph_type, options)
            return follows

    package.GraphLoader, package.downloads = GraphLoader, 0
    exceptions.CacheError, exceptions.FedivertexException = _FakeCacheError, _FakeError
    monkeypatch.setitem(sys.modules, "fedivertex", package)
    monkeypatch.setitem(sys.modules, "fedivertex.exceptions", exceptions)
    return package


def test_peertube_is_undirected_and_simple(
    fedivertex: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = peertube()
    assert type(graph) is nx.Graph
    assert list(graph.nodes) == ["b", "a", "c"]
    assert {frozenset(e) for e in graph.edges} == {frozenset(e) for e in ("ab", "ac", "bc")}
    assert dict(graph.nodes["a"]) == {}
    software, graph_type, options = fedivertex.asked
    assert (software, graph_type) == ("peertube", "follow")
    assert options["date"] == "20250210"
    assert options["only_largest_component"] is True
    assert capsys.readouterr().out == ""  # standard output is for results


def test_peertube_is_downloaded_once(fedivertex: ModuleType) -> None:
    peertube()
    assert fedivertex.downloads == 0
    fedivertex.GraphLoader.cached = False
    assert len(peertube()) == 3
    assert fedivertex.downloads == 1


def test_a_file_of_peertube_comes_first(
    fedivertex: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "peertube"
    folder.mkdir()
    monkeypatch.setenv("NOISEDESIGN_DATA", str(tmp_path))
    (folder / "20250210.edges").write_text("x y\ny x\ny z\nu v\n")
    assert {frozenset(e) for e in peertube().edges} == {frozenset("xy"), frozenset("yz")}
    assert not hasattr(fedivertex, "asked")
    (folder / "another.edges").write_text("a b\n")
    with pytest.raises(InputError, match=r"one file .*got 20250210\.edges, another\.edges"):
        peertube()
    (folder / "another.edges").unlink()
    (folder / "20250210.edges").write_bytes(b"\xff\xfe a b\n")
    with pytest.raises(InputError, match=r"^graph: expected an edge list as text.*20250210"):
        peertube()


def test_peertube_is_a_kind_of_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "peertube").mkdir()
    (tmp_path / "peertube" / "p.edges").write_text("a b\nb c\n")
    monkeypatch.setenv("NOISEDESIGN_DATA", str(tmp_path))
    text = 'name = "p"\ndesign = "space"\n[graph]\nkind = "peertube"\n'
    (tmp_path / "p.toml").write_text(text)
    problem = nd.load(tmp_path / "p.toml").problem
    assert problem.nodes == ("a", "b", "c")
    thirds = [[2 / 3, 1 / 3, 0], [1 / 3, 1 / 3, 1 / 3], [0, 1 / 3, 2 / 3]]
    np.testing.assert_allclose(problem.mixing, thirds, atol=1e-15)


def test_peertube_without_the_package(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fedivertex", None)
    with pytest.raises(InputError, match="no such package") as caught:
        peertube()
    assert "pip install fedivertex" in caught.value.remedy
    assert "NOISEDESIGN_DATA as peertube/NAME.edges" in caught.value.remedy


@pytest.mark.parametrize(
    "error",
    [
        _FakeDownloadError("no route"),
        ConnectionError("no route"),
        FileNotFoundError("no route"),
        zipfile.BadZipFile("no route"),
    ],
)
def test_peertube_offline(
    fedivertex: ModuleType, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def offline(self: object, **kwargs: object) -> None:
        raise _FakeCacheError("No cache found") if kwargs else error

    monkeypatch.setattr(fedivertex.GraphLoader, "__init__", offline)
    with pytest.raises(InputError, match=f"{type(error).__name__}: no route") as caught:
        peertube()
    assert "network" in caught.value.remedy
