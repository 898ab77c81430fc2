"""Sections about a design on a graph of which W stays sparse: nothing is of n x n numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from noisedesign.program.calibration import calibration_of
from noisedesign.program.design import Design
from noisedesign.program.noise import SparseCovariance
from noisedesign.tasks.page.content import Facts, Section, Table, Text
from noisedesign.tasks.page.privacy import NOT_COVERED, promise_of


def sections_of(design: Design) -> list[Section]:
    """Graph, noise, who shares what, privacy and baselines of such a design."""
    space = design.noise.space
    assert isinstance(space, SparseCovariance)
    return [_graph(design), _noise(space), _sharing(space), _privacy(design), _baselines(design)]


def _graph(design: Design) -> Section:
    mixing: Any = design.problem.mixing
    degrees = np.diff(mixing.indptr) - (mixing.diagonal() != 0)
    facts = {
        "nodes": mixing.shape[0],
        "weights between nodes": int(degrees.sum()),
        "neighbours of a node": f"{degrees.min()} to {degrees.max()}, {degrees.mean():.3g} on "
        "average",
        "self weights": f"{mixing.diagonal().min():.3g} to {mixing.diagonal().max():.3g}",
    }
    return Section("graph", "Graph", [Facts(facts)])


def _noise(space: SparseCovariance) -> Section:
    sizes = {what: space.arrays()[name].size for name, what in space.names.items()}
    text = (
        f"R, the covariance of the noise of all nodes, is {space.kind}: it follows from the "
        "numbers below, and from W where it is polynomial. R itself is nowhere."
    )
    rows = [[what, size] for what, size in sizes.items()]
    table = Table("What the noise is made of", ["array", "numbers"], rows)
    return Section("noise", "Noise", [Text(text), table])


def _sharing(space: SparseCovariance) -> Section:
    return Section("sharing", "Who shares what", [Text(space.drawn)])


def _privacy(design: Design) -> Section:
    found = calibration_of(design.problem)
    rows: list[list[Any]] = [
        ["eavesdropper on all messages (ldp)", found.mu, "everything that is sent, and no noise"],
        ["node, if one seed makes all noise (shared-seed)", float("inf"), "no ε holds"],
    ]
    return Section(
        "privacy",
        "Privacy",
        [
            *promise_of(design.problem.privacy, found),
            Table("What an observer learns", ["threat model", "μ", "which"], rows, frozenset({1})),
            Text("What single nodes learn takes n x n arrays, and is not computed here."),
            Text(f"Not covered by any number here: {NOT_COVERED}."),
        ],
    )


def _baselines(design: Design) -> Section:
    facts = {
        "objective": design.objective,
        "of independent noise": design.ldp_objective,
        "over independent noise at equal privacy": design.relative_to_ldp,
        "over the bound on noise of every structure, at most": 1 + design.gap,
        "confidence of objective and bound": design.certificate.confidence,
    }
    return Section("baselines", "Noise against baselines", [Facts(facts)])
