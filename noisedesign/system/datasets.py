"""Public data sets: fetched from their official source, never shipped, always checked.

A file is looked for in the folder named by the environment variable ``NOISEDESIGN_DATA``, then
in the user's cache, then downloaded. Wherever it came from, its sha256 is compared.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

import networkx as nx

from noisedesign.base.checks import InputError, describe
from noisedesign.system.graph import edge_list_graph

DATA_VARIABLE = "NOISEDESIGN_DATA"
EGO_FACEBOOK_URL = "https://snap.stanford.edu/data/facebook.tar.gz"
EGO_FACEBOOK_SHA256 = {
    0: "0a00eb2539ff2f7973ea905947e9c7bf175521fadd7ddc8b310bec1e79a32027",
    107: "38de3a80aab5d256d431d4e62941bb3870500bb299fd5040c5a4314b3a3d4202",
    414: "1f5c9d43608a8cf6d56e27f1902f528cf7cf9ef1114afd3df7bc5888d7250fb1",
}
EGO_FACEBOOK_NODES = {0: 324, 107: 1034, 414: 148}
_FIELD = "graph.ego"

PEERTUBE_DATE = "20250210"
"""Snapshot of the PeerTube graph: the second one, as the published code of Mafalda-SGD takes."""


def data_folder() -> Path | None:
    """The folder named by ``NOISEDESIGN_DATA``, or None where the variable is not set.

    Raises:
        InputError: the variable is set, but not to a folder.
    """
    value = os.environ.get(DATA_VARIABLE)
    if not value:
        return None
    folder = Path(value)
    if not folder.is_dir():
        raise InputError(DATA_VARIABLE, expected="an existing folder", got=value)
    return folder


def ego_facebook(ego: int) -> nx.Graph:
    """Friendships among the friends of one Facebook user, the largest component.

    Egos 0, 107 and 414 have 324, 1034 and 148 nodes; 414 is the Facebook Ego graph of
    Mafalda-SGD. Source: SNAP ego-Facebook (Leskovec and McAuley 2012).

    Raises:
        InputError: another ego; a local copy with the wrong sha256; no copy and no network.
    """
    if type(ego) is not int or ego not in EGO_FACEBOOK_SHA256:
        known = ", ".join(map(str, EGO_FACEBOOK_SHA256))
        raise InputError(_FIELD, expected=f"one of {known}", got=describe(ego))
    path = local_ego_facebook(ego)
    if path is None:
        return edge_list_graph(_download(ego).decode("ascii"), source=EGO_FACEBOOK_URL)
    content = _checked(path.read_bytes(), ego, origin=str(path))
    return edge_list_graph(content.decode("ascii"), source=str(path))


def local_ego_facebook(ego: int) -> Path | None:
    """Where a copy of the edge list lies on this machine, not yet checked, or None."""
    folders = [folder for folder in (data_folder(), _cache_folder()) if folder is not None]
    candidates = (folder / "ego-facebook" / f"{ego}.edges" for folder in folders)
    return next((path for path in candidates if path.is_file()), None)


def peertube() -> nx.Graph:
    """Which PeerTube servers follow each other, undirected and simple.

    The largest set of servers that all reach each other along follows (the largest strongly
    connected component), as the published code of Mafalda-SGD takes it. Source: Fedivertex (Damie
    and Cyffers 2025), through the package ``fedivertex``, which keeps a copy once downloaded.

    Raises:
        InputError: the package is not installed; there is no copy and no network.
    """
    field, expected = "graph", "the PeerTube graph, from the package fedivertex"
    try:
        from fedivertex import GraphLoader
        from fedivertex.exceptions import CacheError, FedivertexException
    except ImportError as error:
        raise InputError(
            field, expected=expected, got="no such package", remedy="Run: pip install fedivertex"
        ) from error
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
        raise InputError(
            field,
            expected=expected,
            got=f"{type(error).__name__}: {error}",
            remedy="Its first use needs the network.",
        ) from error
    graph = nx.Graph()
    graph.add_nodes_from(directed.nodes)
    graph.add_edges_from((u, v) for u, v in directed.edges if u != v)
    return graph


def _cache_folder() -> Path:
    import pooch

    return Path(pooch.os_cache("noisedesign"))


def _checked(content: bytes, ego: int, *, origin: str) -> bytes:
    digest = hashlib.sha256(content).hexdigest()
    if digest != EGO_FACEBOOK_SHA256[ego]:
        raise InputError(
            _FIELD,
            expected=f"{origin} with sha256 {EGO_FACEBOOK_SHA256[ego]}",
            got=digest,
            remedy=f"The file has been altered. Restore it from {EGO_FACEBOOK_URL}.",
        )
    return content


def _download(ego: int) -> bytes:
    """Fetch the archive and keep its one member that is wanted, once checked, in the cache."""
    import pooch

    member = f"facebook/{ego}.edges"
    target = _cache_folder() / "ego-facebook" / f"{ego}.edges"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            # The archive's own digest is not published; the member's is checked by the caller.
            archive = pooch.retrieve(EGO_FACEBOOK_URL, known_hash=None, path=scratch)
            with tarfile.open(archive) as tar:
                stream = tar.extractfile(member)
                if stream is None:
                    raise tarfile.ExtractError(f"{member} is not a regular file")
                content = _checked(stream.read(), ego, origin=f"{EGO_FACEBOOK_URL}: {member}")
            extracted = Path(scratch) / target.name
            extracted.write_bytes(content)
            extracted.replace(target)
    except (OSError, EOFError, KeyError, tarfile.TarError) as error:
        raise InputError(
            _FIELD,
            expected=f"{member}, from a local copy or {EGO_FACEBOOK_URL}",
            got=f"no copy, and the download failed ({type(error).__name__})",
            remedy=f"Set {DATA_VARIABLE} to a folder that holds ego-facebook/{ego}.edges, or "
            f"download the archive by hand and put its {member} there.",
        ) from error
    return content
