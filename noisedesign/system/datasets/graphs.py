"""Graphs of real networks: friends on Facebook, servers of PeerTube."""

from __future__ import annotations

import contextlib
import sys
import zipfile
from pathlib import Path

import networkx as nx

from noisedesign.base.checks import InputError, describe
from noisedesign.base.regular_files import read_regular
from noisedesign.system.datasets.lookup import DATA_VARIABLE, DataFile, data_folder
from noisedesign.system.graph import edge_list_graph

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
    """The PeerTube servers that follow each other (Fedivertex: Damie and Cyffers 2025): a list in
    the folder of ``NOISEDESIGN_DATA``, without a checksum, else by ``fedivertex``, as
    Mafalda-SGD."""
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
