"""Every kind of wrong value that a user may give, and what a call makes of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from scipy.sparse import csr_array

import noisedesign as nd
from noisedesign.privacy import views as threats

W = np.array([[2.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 2.0]]) / 3
GRAPH = nx.path_graph(3)
SCHEME = nd.participation.FixedEpoch(epochs=2, separation=2)
SPACE = nd.SpaceProblem(mixing=W)
TIME = nd.TimeProblem.prefix(participation=SCHEME)
DESIGN = nd.solve(SPACE).design
TARGET = nd.PrivacyTarget(epsilon=1.0, delta=1e-5)
TARGETED = nd.SpaceProblem(mixing=W, privacy=TARGET, participation=SCHEME)
TARGETED_DESIGN = nd.solve(TARGETED).design
ALGORITHM = threats.dp_d_sgd(mixing=W, horizon=4)
assert DESIGN is not None

WRONG: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "True": lambda: True,
    "text": lambda: "abc",
    "empty text": lambda: "",
    "null character": lambda: "a\0b",
    "bytes": lambda: b"abc",
    "complex": lambda: 1j,
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "-1": lambda: -1,
    "0": lambda: 0,
    "half": lambda: 0.5,
    "negative": lambda: -0.5,
    "2^63": lambda: 2**63,
    "10^30": lambda: 10**30,
    "10^400": lambda: 10**400,
    "10^5000": lambda: 10**5000,
    "1e308": lambda: 1e308,
    "denormal": lambda: 5e-324,
    "float32": lambda: np.float32(0.1),
    "numpy bool": lambda: np.True_,
    "list": list,
    "ragged": lambda: [[1.0], [1.0, 2.0]],
    "list of texts": lambda: ["a", "b", "c"],
    "tuple of None": lambda: (None, None, None),
    "dict": lambda: {"a": 1},
    "set": lambda: {1, 2},
    "object": object,
    "type": lambda: int,
    "function": lambda: len,
    "generator": lambda: (i for i in range(3)),
    "float32 array": lambda: W.astype(np.float32),
    "object array": lambda: W.astype(object),
    "text array": lambda: np.array(["a", "b", "c"]),
    "empty array": lambda: np.zeros((0, 0)),
    "array without axes": lambda: np.array(1.0),
    "vector": lambda: np.ones(3),
    "integers": lambda: np.arange(3),
    "cube": lambda: np.ones((2, 2, 2)),
    "nan array": lambda: np.full((3, 3), np.nan),
    "huge array": lambda: np.full((3, 3), 1e308),
    "complex array": lambda: W + 0j,
    "masked array": lambda: np.ma.masked_array(W.copy(), mask=np.eye(3, dtype=bool)),
    "masked": lambda: np.ma.masked,
    "sparse": lambda: csr_array(W),
    "graph": lambda: GRAPH,
    "no graph": nx.Graph,
    "digraph": lambda: nx.DiGraph([(0, 1), (1, 0)]),
    "multigraph": lambda: nx.MultiGraph([(0, 1), (0, 1)]),
    "path": lambda: Path("nothing.toml"),
    "folder": lambda: Path(),
    "problem": lambda: SPACE,
    "time problem": lambda: TIME,
    "design": lambda: DESIGN,
    "target": lambda: TARGET,
    "scheme": lambda: SCHEME,
    "algorithm": lambda: ALGORITHM,
    "exception": lambda: ValueError("x"),
}


def mistakes(
    call: Callable[..., Any],
    right: Mapping[str, Any],
    argument: str,
    *,
    wrong: Mapping[str, Callable[[], Any]] = WRONG,
) -> tuple[list[str], int]:
    """What a call with one wrong argument raises that is no InputError, or a long one; and how many
    values it refuses. What is right for one argument is wrong for another, so that a call may also
    succeed."""
    others, refused = [], 0
    for kind, value in wrong.items():
        try:
            call(**{**right, argument: value()})
        except nd.InputError as error:
            refused += 1
            if len(str(error)) > 2000:
                others.append(f"{kind}: an error of {len(str(error))} characters")
        except Exception as error:
            others.append(f"{kind}: {type(error).__name__}: {error}")
    return others, refused
