"""One iterate of the interior-point method for covariances on cliques."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisedesign import _linalg
from noisedesign._checks import Array
from noisedesign.backends.native.clique_blocks import Layout, congruence, transposed
from noisedesign.clique_certificate import CliqueProgram


class Hidden(NamedTuple):
    """What one coalition leaves: ``nodes`` outside it and ``kept`` entries of the flat vector."""

    nodes: NDArray[np.intp]
    kept: NDArray[np.bool_] | None  # None: all of them


class Setting:
    """What stays the same from iterate to iterate. The program has unit budgets."""

    def __init__(self, program: CliqueProgram) -> None:
        self.program = program
        self.gram = program.gram
        self.cap = program.cap
        self.layout = layout = Layout(program.cliques, program.size)
        self.gram_blocks = layout.gather(program.gram)
        self.hidden = [self._hidden(coalition) for coalition in program.coalitions]
        constraints = sum(len(h.nodes) for h in self.hidden)
        capped = 0 if self.cap is None else program.size
        self.order = layout.order_of_cone + constraints + capped
        """Order of the barrier: the gap on the central path is this many times mu."""

    def _hidden(self, coalition: tuple[int, ...]) -> Hidden:
        nodes = np.setdiff1d(np.arange(self.program.size), coalition)
        if not coalition:
            return Hidden(nodes, None)
        masks = []
        for members in self.layout.members:
            free = ~np.isin(members, coalition).any(axis=1)
            k = members.shape[1]
            masks.append(np.repeat(free, k * k))
        return Hidden(nodes, np.concatenate(masks))

    def restrict(self, flat: Array, index: int) -> Array:
        """The blocks that coalition ``index`` does not touch, zeros elsewhere."""
        kept = self.hidden[index].kept
        return flat if kept is None else flat * kept

    def precisions(self, flat: Array) -> list[Array]:
        """R_A^-1 for every coalition, zero in the rows and columns of A.

        Raises:
            numpy.linalg.LinAlgError: some R_A is not positive definite.
        """
        found = []
        for index, (nodes, kept) in enumerate(self.hidden):
            total = self.layout.assemble(self.restrict(flat, index))
            if kept is None:
                found.append(_linalg.inverse_of_positive(total))
                continue
            inside = np.ix_(nodes, nodes)
            precision = np.zeros_like(total)
            precision[inside] = _linalg.inverse_of_positive(total[inside])
            found.append(precision)
        return found

    def slacks(self, precisions: list[Array]) -> list[Array]:
        """1 - [R_A^-1]_ii; 1 for the nodes of A, whose multipliers are 0."""
        return [1 - np.diagonal(precision) for precision in precisions]

    def variances(self, flat: Array) -> Array:
        diagonals = [np.einsum("mii->mi", block) for block in self.layout.split(flat)]
        return self.layout.node_sums(diagonals)


@dataclass(kw_only=True, eq=False)
class Point:
    """Blocks P and their multipliers S; v of every budget, w of every cap; what follows from P."""

    blocks: Array
    dual: Array
    weights: list[Array]
    prices: Array | None
    precisions: list[Array]
    slacks: list[Array]
    room: Array | None  # cap - R_ii

    def complementarity(self) -> float:
        total = float(self.blocks @ self.dual)
        total += sum(float(v @ s) for v, s in zip(self.weights, self.slacks, strict=True))
        if self.prices is not None and self.room is not None:
            total += float(self.prices @ self.room)
        return total

    def curvature(self) -> list[Array]:
        """N_A = R_A^-1 diag(v_A) R_A^-1."""
        pairs = zip(self.precisions, self.weights, strict=True)
        return [(precision * v) @ precision for precision, v in pairs]


def start(setting: Setting) -> Point:
    """Noise that is larger where it costs less, well within every constraint; S and v to match.

    With caps, independent noise halfway between budget and cap.
    """
    layout = setting.layout
    if setting.cap is None:
        grams = [np.linalg.inv(block) for block in layout.split(setting.gram_blocks)]
        blocks = layout.join([(g + transposed(g)) / 2 for g in grams])
        largest = np.max([np.diagonal(x) for x in setting.precisions(blocks)], axis=0)
        blocks = layout.scaled(blocks, np.sqrt(2 * largest))
    else:
        variance = np.minimum(2.0, (1 + setting.cap) / 2)
        share = variance / layout.node_sums([np.ones(m.shape) for m in layout.members])
        parts = [share[m][:, :, None] * np.eye(m.shape[1]) for m in layout.members]
        blocks = layout.join(parts)
    precisions = setting.precisions(blocks)
    slacks = setting.slacks(precisions)
    mu = float(setting.gram_blocks @ blocks) / setting.order
    weights = [
        np.where(np.isin(np.arange(layout.size), nodes), mu / s, 0.0)
        for (nodes, _), s in zip(setting.hidden, slacks, strict=True)
    ]
    room = None if setting.cap is None else setting.cap - setting.variances(blocks)
    return Point(
        blocks=blocks, dual=mu * inverses(layout, blocks), weights=weights,
        prices=None if room is None else mu / room, precisions=precisions, slacks=slacks, room=room,
    )  # fmt: skip


def inverses(layout: Layout, flat: Array) -> Array:
    """P^-1, exactly symmetric."""
    found = [np.linalg.inv(np.linalg.cholesky(block)) for block in layout.split(flat)]
    return layout.join([transposed(half) @ half for half in found])


def bounds(setting: Setting, point: Point) -> tuple[float, float]:
    """Lower bound of the multipliers N_A, v_A, w as they are; objective, rows rescaled or not."""
    layout, gram = setting.layout, setting.gram
    prices = np.zeros(layout.size) if point.prices is None else point.prices
    total = np.zeros(len(point.blocks))
    for index, curvature in enumerate(point.curvature()):
        total += setting.restrict(layout.gather(curvature), index)
    priced = layout.gather(gram + np.diag(prices))
    worst = 0.0
    for block, part in zip(layout.split(priced), layout.split(total), strict=True):
        half = np.linalg.inv(np.linalg.cholesky(block))
        worst = max(worst, float(np.linalg.eigvalsh(congruence(half, part))[:, -1].max()))
    lower = 0.0
    for precision, v in zip(point.precisions, point.weights, strict=True):
        lower += float(v @ np.diagonal(precision)) ** 2 / float(v.sum()) / worst
    if setting.cap is not None:
        lower -= float(setting.cap @ prices)
    scaled = layout.scaled(point.blocks, rescaling(point.precisions))
    upper = min(float(setting.gram_blocks @ point.blocks), float(setting.gram_blocks @ scaled))
    return lower, upper


def rescaling(precisions: list[Array]) -> Array:
    """Rows scaled so that the tightest budget of every node is met exactly."""
    return np.sqrt(np.max([np.diagonal(precision) for precision in precisions], axis=0))
