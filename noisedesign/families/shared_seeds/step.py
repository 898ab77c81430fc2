"""Where to go from a point: right-hand sides of the Newton system, and the changes they lead to.

The system linearises P_c S_c = mu I (scaled by W), v_i s_i = mu and N = R^-1 diag(v) R^-1. What a
first step, the predictor, leaves out to second order is known once it is, and the second step, the
corrector, allows for it (Mehrotra 1992): products of the changes, and in X = R^-1 the next term of
its series, (R + dR)^-1 = X - X dR X + X dR X dR X - ..., in the slacks as well as in N.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from noisedesign.base import linalg as _linalg
from noisedesign.base.checks import Array
from noisedesign.families.shared_seeds.blocks import Layout, congruence, inverses, transposed
from noisedesign.families.shared_seeds.newton import NewtonSystem


@dataclass(frozen=True, kw_only=True, eq=False)
class Bend:
    """What a step leaves out to second order, of every equation, from its own change.

    ``blocks`` of P S in the units of S, flat; for every coalition ``products`` dv ds, ``slacks``
    and ``curvatures``, what s and N gain; ``room`` dw times the change of the room under the caps.
    """

    blocks: Array
    products: list[Array]
    slacks: list[Array]
    curvatures: list[Array]
    room: Array | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Change:
    """Changes dP and dS, flat; dv and, to first order, ds of every coalition; dw and the change of
    the room under the caps; the N it all leads to, where there are no coalitions."""

    blocks: Array
    dual: Array
    weights: list[Array]
    slacks: list[Array]
    prices: Array | None
    room: Array | None
    curvature: Array | None
    products: int


def change(
    system: NewtonSystem,
    *,
    mu: float,
    bend: Bend | None = None,
    start: Array | None = None,
    tolerance: float,
    most: int,
    expired: Callable[[], bool],
) -> Change:
    """The change towards products of mu, solved for by conjugate gradients.

    What they leave of the residual is moved into N, whose entries are free as long as those of the
    cliques match: so the multipliers stay feasible however loosely the system is solved.
    """
    setting, point = system.setting, system.point
    layout = setting.layout
    barrier = mu * inverses(layout, point.blocks)
    if bend is not None:
        barrier -= bend.blocks
    ahead = [_weights(system, index, mu, bend) for index in range(len(point.weights))]
    right = barrier - setting.gram_blocks
    for index, (precision, v) in enumerate(zip(point.precisions, ahead, strict=True)):
        pull = (precision * v) @ precision
        if bend is not None:
            pull = pull + bend.curvatures[index]
        right += setting.restrict(layout.gather(pull), index)
    prices = _prices(system, mu, bend)
    if prices is not None:
        right -= layout.gather(np.diag(prices))
    found, residual, used = system.solve(
        right, start, tolerance=tolerance, scale=point.complementarity(), most=most, expired=expired
    )
    left = None
    if point.curvature is not None:
        found, left = _settled(system, found, residual)
    blocks = layout.symmetrized(found)
    return _completed(system, blocks, barrier, ahead, prices, bend, left, used)


def bend(system: NewtonSystem, step: Change, share: float) -> Bend:
    """What a step would leave out, times ``share``: it is not going to be taken whole."""
    setting, point = system.setting, system.point
    products, slacks, curvatures = [], [], []
    for index, (x, v, dv, ds) in enumerate(
        zip(point.precisions, point.weights, step.weights, step.slacks, strict=True)
    ):
        moved = x @ setting.layout.assemble(setting.restrict(step.blocks, index))
        first = moved @ x
        second = moved @ first
        half = ((second * v) - (first * dv)) @ x
        curvatures.append(share * (half + half.T + (first * v) @ first))
        slacks.append(-share * np.diagonal(second))
        products.append(share * dv * ds)
    room = None
    if step.prices is not None and step.room is not None:
        room = share * step.prices * step.room
    blocks = share * _product(setting.layout, system, step)
    return Bend(blocks=blocks, products=products, slacks=slacks, curvatures=curvatures, room=room)


def _weights(system: NewtonSystem, index: int, mu: float, bend: Bend | None) -> Array:
    """v + dv but for what the change of s takes."""
    v, s = system.point.weights[index], system.point.slacks[index]
    wanted = np.full_like(v, mu)
    if bend is not None:
        wanted -= v * bend.slacks[index] + bend.products[index]
    return np.where(v > 0, wanted / s, 0.0)


def _prices(system: NewtonSystem, mu: float, bend: Bend | None) -> Array | None:
    """w + dw but for what the change of the room takes."""
    if system.point.room is None:
        return None
    wanted = mu if bend is None or bend.room is None else mu - bend.room
    return np.asarray(wanted / system.point.room)


def _settled(system: NewtonSystem, found: Array, residual: Array) -> tuple[Array, Array]:
    """A change after which the residual is G_cc, and G."""
    layout = system.setting.layout
    count = layout.assemble(np.ones_like(residual))
    left = layout.assemble(residual) / np.maximum(count, 1.0)
    if system.correction is not None:
        # After the mean, so that what cancels here is small.
        moved, more = system.correction.settle(residual - layout.gather(left))
        return found + moved, left + more
    return found, left


def _completed(
    system: NewtonSystem,
    blocks: Array,
    barrier: Array,
    ahead: list[Array],
    prices: Array | None,
    bend: Bend | None,
    left: Array | None,
    used: int,
) -> Change:
    setting, point = system.setting, system.point
    layout, weights, slacks = setting.layout, [], []
    curvature = None
    for index, (x, v) in enumerate(zip(point.precisions, point.weights, strict=True)):
        moved = (x @ layout.assemble(setting.restrict(blocks, index))) @ x
        slacks.append(np.diagonal(moved).copy())
        after = ahead[index] - system.stiffness[index] * slacks[-1]
        weights.append(after - v)
        if left is not None:
            half = (x * (after / 2) - moved * v) @ x
            more = 0.0 if bend is None else bend.curvatures[index]
            curvature = _linalg.symmetrized(half + half.T + more - left)
    room, price_change = None, None
    if prices is not None and system.cap_stiffness is not None and point.prices is not None:
        room = -setting.variances(blocks)
        price_change = prices - system.cap_stiffness * room - point.prices
    dual = layout.symmetrized(barrier - system.scaled_back(blocks) - point.dual)
    return Change(
        blocks=blocks,
        dual=dual,
        weights=weights,
        slacks=slacks,
        prices=price_change,
        room=room,
        curvature=curvature,
        products=used,
    )


def _product(layout: Layout, system: NewtonSystem, step: Change) -> Array:
    """dP dS, made symmetric where P and S are the same diagonal matrix, as blocks of S."""
    found = []
    for w, s, dp, ds in zip(
        system.scalings,
        layout.split(system.point.dual),
        layout.split(step.blocks),
        layout.split(step.dual),
        strict=True,
    ):
        root = np.asarray(np.linalg.cholesky(w))
        values, vectors = np.linalg.eigh(congruence(transposed(root), s))
        root = root @ vectors
        inverse = np.linalg.inv(root)
        both = congruence(inverse, dp) @ congruence(transposed(root), ds)
        both = (both + transposed(both)) / (values[:, :, None] + values[:, None, :])
        found.append(congruence(transposed(inverse), both))
    return layout.join(found)
