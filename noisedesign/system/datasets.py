"""Public data sets, always checked by sha256: from the folder of the environment variable
``NOISEDESIGN_DATA``, then the user's cache, then their official source. Graphs of real networks
among them: friends on Facebook, servers of PeerTube."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import networkx as nx

from noisedesign.base.checks import InputError, describe
from noisedesign.base.extras import need
from noisedesign.base.regular_files import read_regular
from noisedesign.system.graph import edge_list_graph

DATA_VARIABLE = "NOISEDESIGN_DATA"


def data_folder() -> Path | None:
    """The folder named by ``NOISEDESIGN_DATA``, or None where the variable is not set."""
    value = os.environ.get(DATA_VARIABLE)
    if not value:
        return None
    folder = Path(value)
    if not folder.is_dir():
        raise InputError(DATA_VARIABLE, expected="an existing folder", got=value)
    return folder


def unchanged(content: bytes) -> bytes:
    return content


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """A file of a public data set, which is never shipped and always checked."""

    field: str  # of errors
    name: str  # its path in the folder of NOISEDESIGN_DATA and in the cache
    sha256: str  # of its content, or of the canonical form of that
    url: str  # the official source; an archive where ``member`` is given
    member: str = ""
    canonical: Callable[[bytes], bytes] = unchanged  # the same for every accepted copy
    checksum_of: str = "its content"  # in words

    def local(self) -> Path | None:
        """The path of a copy on this machine, not yet checked, or None."""
        folders = [folder for folder in (data_folder(), _cache_folder()) if folder is not None]
        candidates = (folder / self.name for folder in folders)
        return next((path for path in candidates if path.is_file()), None)

    def read(self) -> bytes:
        """Its content, in canonical form, from a local copy or else from the official source."""
        path = self.local()
        if path is None:
            return self._download()
        return self._checked(path.read_bytes(), origin=str(path))

    def _checked(self, content: bytes, *, origin: str) -> bytes:
        content = self.canonical(content)
        digest = hashlib.sha256(content).hexdigest()
        if digest != self.sha256:
            expected = f"{origin} with {self._checksum}"
            remedy = f"The file has been altered. Restore it from {self.url}."
            raise InputError(self.field, expected=expected, got=digest, remedy=remedy)
        return content

    @property
    def _checksum(self) -> str:
        of = "" if self.canonical is unchanged else f" of {self.checksum_of}"
        return f"sha256{of} {self.sha256}"

    def _download(self) -> bytes:
        """Fetch the file, or the one wanted member of an archive, and keep it once checked."""
        need("pooch", field=self.field)
        import pooch

        wanted = self.member or Path(self.name).name
        origin = f"{self.url}: {self.member}" if self.member else self.url
        target = Path(pooch.os_cache("noisedesign")) / self.name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
                # The checksum of an archive may not be published; that of what is kept is ours.
                fetched = Path(pooch.retrieve(self.url, known_hash=None, path=scratch))
                content = _member(fetched, self.member) if self.member else fetched.read_bytes()
                canonical = self._checked(content, origin=origin)
                kept = Path(scratch) / f"checked-{target.name}"
                kept.write_bytes(content)
                kept.replace(target)
        except (OSError, EOFError, KeyError, tarfile.TarError, zipfile.BadZipFile) as error:
            where = "download the archive by hand and put its" if self.member else "download"
            raise InputError(
                self.field,
                expected=f"{wanted}, from a local copy or {self.url}",
                got=f"no copy, and the download failed ({type(error).__name__})",
                remedy=f"Set {DATA_VARIABLE} to a folder that holds {self.name}: {where} {wanted} "
                f"there. Its {self._checksum} is compared.",
            ) from error
        return canonical


def _cache_folder() -> Path | None:
    """The user's cache; None without pooch, which knows where it is and fills it."""
    if find_spec("pooch") is None:
        return None
    import pooch

    return Path(pooch.os_cache("noisedesign"))


def _member(archive: Path, name: str) -> bytes:
    """One member of an archive; no other is unpacked."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened:
            return opened.read(name)
    with tarfile.open(archive) as tar:
        stream = tar.extractfile(name)
        if stream is None:
            raise tarfile.ExtractError(f"{name} is not a regular file")
        return stream.read()


EGO_FACEBOOK_URL = "https://snap.stanford.edu/data/facebook.tar.gz"
EGO_FACEBOOK_SHA256 = {
    0: "0a00eb2539ff2f7973ea905947e9c7bf175521fadd7ddc8b310bec1e79a32027",
    107: "38de3a80aab5d256d431d4e62941bb3870500bb299fd5040c5a4314b3a3d4202",
    414: "1f5c9d43608a8cf6d56e27f1902f528cf7cf9ef1114afd3df7bc5888d7250fb1",
}
EGO_FACEBOOK_NODES = {0: 324, 107: 1034, 414: 148}
_EGO_FIELD = "graph.ego"

PEERTUBE_DATE = "20250210"  # the second snapshot, as in the published code of Mafalda-SGD
PEERTUBE_NODES = 271
_PEERTUBE_FIELD = "graph"


def ego_facebook(ego: int) -> nx.Graph:
    """Friends of one Facebook user, the largest component (SNAP: Leskovec and McAuley 2012)."""
    if type(ego) is not int or ego not in EGO_FACEBOOK_SHA256:
        known = ", ".join(map(str, EGO_FACEBOOK_SHA256))
        raise InputError(_EGO_FIELD, expected=f"one of {known}", got=describe(ego))
    file = _ego_file(ego)
    return edge_list_graph(file.read().decode("ascii"), source=file.name)


def local_ego_facebook(ego: int) -> Path | None:
    """The path of a copy on this machine, not yet checked, or None."""
    return _ego_file(ego).local()


def _ego_file(ego: int) -> DataFile:
    return DataFile(
        field=_EGO_FIELD,
        name=f"ego-facebook/{ego}.edges",
        sha256=EGO_FACEBOOK_SHA256[ego],
        url=EGO_FACEBOOK_URL,
        member=f"facebook/{ego}.edges",
    )


def peertube() -> nx.Graph:
    """PeerTube servers that follow each other (Fedivertex: Damie and Cyffers 2025)."""
    # A list in the folder of ``NOISEDESIGN_DATA`` needs no checksum: others ask ``fedivertex``.
    path = local_peertube()
    if path is None:
        return _fedivertex()
    text = read_regular(path, field=_PEERTUBE_FIELD, expected="an edge list")
    try:
        return edge_list_graph(text.decode("utf-8"), source=str(path))
    except UnicodeDecodeError as error:
        got = f"{path}: {error.reason}"
        raise InputError(_PEERTUBE_FIELD, expected="an edge list as text", got=got) from error


def local_peertube() -> Path | None:
    """The edge list in the folder of ``NOISEDESIGN_DATA``, or None."""
    folder = data_folder()
    found = [] if folder is None else sorted((folder / "peertube").glob("*.edges"))
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        expected = f"one file peertube/*.edges in the folder of {DATA_VARIABLE}"
        raise InputError(_PEERTUBE_FIELD, expected=expected, got=names)
    return found[0] if found else None


def _fedivertex() -> nx.Graph:
    field, expected = _PEERTUBE_FIELD, "the PeerTube graph, from the package fedivertex"
    by_hand = f"put its edge list into the folder of {DATA_VARIABLE} as peertube/NAME.edges."
    try:
        from fedivertex import GraphLoader
        from fedivertex.exceptions import CacheError, FedivertexException
    except ImportError as error:
        remedy = f"Run: pip install fedivertex. Or {by_hand}"
        raise InputError(field, expected=expected, got="no such package", remedy=remedy) from error
    try:
        # It prints its progress; standard output is for results.
        with contextlib.redirect_stdout(sys.stderr):
            try:
                loader = GraphLoader(cache_only=True)
            except CacheError:
                loader = GraphLoader()
            directed = loader.get_graph(
                software="peertube",
                graph_type="follow",
                date=PEERTUBE_DATE,
                only_largest_component=True,
                disable_tqdm=True,
            )
    except (FedivertexException, OSError, ValueError, zipfile.BadZipFile) as error:
        got = f"{type(error).__name__}: {error}"
        remedy = f"Its first use needs the network. Or {by_hand}"
        raise InputError(field, expected=expected, got=got, remedy=remedy) from error
    graph = nx.Graph()
    graph.add_nodes_from(directed.nodes)
    graph.add_edges_from((u, v) for u, v in directed.edges if u != v)
    return graph
