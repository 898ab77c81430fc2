"""Designs small enough to be worked out by hand, and ways to falsify their files."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from noisedesign.base.monitor import Bounds
from noisedesign.certify.certificate import Certificate
from noisedesign.certify.program import DualPoint, diagonal_dual
from noisedesign.design.design import Design, Provenance
from noisedesign.problem.problem import PrivacyTarget, SpaceProblem, TimeProblem
from noisedesign.system.participation import FixedEpoch
from tests.support.made_designs import made

PATH_3 = np.array([[2, 1, 0], [1, 1, 1], [0, 1, 2]]) / 3
"""Metropolis-Hastings on a path of three nodes: eigenvalues 1, 2/3 and 0, squared norm 13/9."""

TARGET = PrivacyTarget(epsilon=3.0, delta=1e-5, clip=0.5, steps=4, adjacency="replace")

PROVENANCE = Provenance(
    method="by hand",
    backend="pencil",
    status="optimal",
    solve_seconds=0.25,
    evaluations=3,
    versions={"paper": "A4"},
    history=(Bounds(seconds=0.1, lower=0.0, upper=float("inf")),),
)


def space_design(**kwargs: Any) -> Design:
    """Independent noise on PATH_3: tr(W W^T) = 13/9, and (1 + 2/3)^2 / 3 = 25/27 below it."""
    nodes = ("Ann", "Bob, jr.", "Çelik")
    problem = SpaceProblem(mixing=PATH_3, name="path-3", nodes=nodes, **kwargs)
    certificate = Certificate(objective=13 / 9, lower_bound=25 / 27, sensitivity_squared=1.0)
    return made(
        problem=problem,
        matrix=np.eye(3),
        certificate=certificate,
        provenance=PROVENANCE,
        dual=diagonal_dual(np.ones(3)),
    )


def capped_design() -> Design:
    """As space_design with tau = 2 and diag(R) <= 1: R = I / 2 is at half its cap."""
    problem = SpaceProblem(mixing=PATH_3, budget=2.0, max_variance=1.0, name="capped")
    certificate = Certificate(
        objective=13 / 18, lower_bound=25 / 54, sensitivity_squared=1.0, variance_ratio=0.5
    )
    return made(
        problem=problem,
        matrix=np.eye(3) / 2,
        certificate=certificate,
        provenance=PROVENANCE,
        dual=diagonal_dual(np.ones(3), np.zeros(3)),
    )


def single_epoch_design() -> Design:
    """Prefix sums, T = 2, one participation, C = I: tr H = 3; a bound proved by U = diag(2, 1).

    H = [[2, 1], [1, 1]] and U^1/2 H U^1/2 = [[4, sqrt 2], [sqrt 2, 1]], of trace 5 and
    determinant 2. The squared trace of its root is 5 + 2 sqrt 2; the price of U is 3.
    """
    problem = TimeProblem.prefix(participation=FixedEpoch(epochs=1, separation=2), name="two")
    certificate = Certificate(
        objective=3.0, lower_bound=(5 + 2 * np.sqrt(2)) / 3, sensitivity_squared=1.0
    )
    return made(
        problem=problem,
        matrix=np.eye(2),
        certificate=certificate,
        provenance=PROVENANCE,
        dual=diagonal_dual(np.array([2.0, 1.0])),
    )


GRAM_4 = (
    np.array([[10, -3, 0, 2], [-3, 10, -2, 0], [0, -2, 10, -3], [2, 0, -3, 10]], dtype=np.float64)
    / 20
)
"""X for (k, b) = (2, 2): diagonal on the patterns {0, 2} and {1, 3}, each of trace 1."""


def time_design(
    *, privacy: PrivacyTarget | None = None, decentralized: bool = True, name: str = "four"
) -> Design:
    """C^T C = GRAM_4, of squared sensitivity one; the bound is that of U = I.

    With U = I the bound is (tr H^1/2)^2 / b, since every block has p = 1 and there are b = 2.
    """
    participation = FixedEpoch(epochs=2, separation=2)
    if decentralized:
        nodes = ("a", "b", "c")
        problem = TimeProblem.decentralized(
            mixing=PATH_3, participation=participation, name=name, nodes=nodes, privacy=privacy
        )
    else:
        problem = TimeProblem.prefix(participation=participation, name=name, privacy=privacy)
    lower = np.linalg.cholesky(GRAM_4[::-1, ::-1])
    strategy = lower[::-1, ::-1].T * (1 - 1e-13)
    roots = np.sqrt(np.maximum(np.linalg.eigvalsh(problem.gram), 0.0))
    certificate = Certificate(
        objective=float(np.trace(problem.gram @ np.linalg.inv(GRAM_4))) * (1 + 2e-13),
        lower_bound=float(roots.sum() ** 2 / 2),
        sensitivity_squared=(1 - 1e-13) ** 2,
    )
    return made(
        problem=problem,
        matrix=strategy,
        certificate=certificate,
        provenance=PROVENANCE,
        dual=DualPoint(blocks=np.tile(np.eye(2), (2, 1, 1))),
    )


def seal(body: bytes) -> bytes:
    """Append the digest of a file that lacks only that."""
    return body + hashlib.sha256(body).hexdigest().encode()


Edit = Callable[[dict[str, Any], dict[str, np.ndarray]], None]


def falsify(path: Path, edit: Edit, *, honest_arrays: bool = True) -> None:
    """Let ``edit`` change manifest and arrays of a design file, and seal it again."""
    with zipfile.ZipFile(path) as archive:
        names, comment = archive.namelist(), archive.comment
        manifest = json.loads(archive.read("manifest.json"))
        arrays = {
            name: np.load(io.BytesIO(archive.read(name)), allow_pickle=False)
            for name in names
            if name.endswith(".npy")
        }
    arrays = {name.removesuffix(".npy"): array.copy() for name, array in arrays.items()}
    edit(manifest, arrays)
    if honest_arrays:
        for name, array in arrays.items():
            entry = manifest["arrays"].setdefault(name, {"kind": "?", "dtype": "float64"})
            entry["shape"] = list(array.shape)
            entry["sha256"] = hashlib.sha256(array.tobytes()).hexdigest()
    members = {"manifest.json": json.dumps(manifest).encode()}
    for name, array in arrays.items():
        buffer = io.BytesIO()
        np.save(buffer, array, allow_pickle=array.dtype.hasobject)
        members[f"{name}.npy"] = buffer.getvalue()
    write_sealed(path, members, comment=comment)


def write_sealed(path: Path, members: dict[str, bytes], *, comment: bytes) -> None:
    """A zip archive of ``members`` with a valid seal."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        archive.comment = comment
    path.write_bytes(seal(buffer.getvalue()[:-64]))
