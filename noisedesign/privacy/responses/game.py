"""The game behind an account of gradients that answer to models: shifts of noise against responses.

A step is three matrices: J, F' and S are Upsilon, F with a bar and Xi of docs/mathematics/views.md,
theorem F. Under noise with memory the state is longer by what its next values depend on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from noisedesign.base import linalg as _linalg
from noisedesign.base.checks import Array
from noisedesign.base.enclosures import Enclosure
from noisedesign.privacy.views.mechanism import LinearMechanism, Step

MOST_PRODUCTS = 2e8
"""States cubed times steps times patterns, where noise has a memory: what a search takes half a
minute a victim for, at about 5e-10 s for each in every one of some hundred evaluations."""
ROUNDING = 1e-13  # relative size of entries of C and C^-1 that are rounding and end a memory


class Stage(NamedTuple):
    """One step: J, shape (N, N), F', shape (N', N), and S, shape (N', N')."""

    seen: Array
    through: Array
    free: Array


@dataclass(frozen=True, kw_only=True)
class Game:
    """All steps of one observer, whose ``known`` nodes are left out."""

    system: Callable[[int], Step]  # the step t with its remembered noise
    horizon: int
    nodes: NDArray[np.intp]  # in the order of the first entries of a state
    constant: bool  # whether all steps are alike
    active: NDArray[np.bool_]  # nodes of every step whose models still matter, shape (T, nodes)
    most_patterns: float = math.inf  # that a search takes an acceptable time for

    def place(self, victim: int) -> int:
        """Place of a node in the state."""
        return int(np.flatnonzero(self.nodes == victim)[0])

    def stages(self, enclosed: Sequence[tuple[Enclosure, Enclosure, Enclosure]]) -> list[Stage]:
        """The middles of enclosed steps."""
        found: list[Stage] = []
        for seen, through, ways in enclosed:
            if found and self.constant:
                found.append(found[0])
                continue
            free = ways.mid @ ways.mid.T
            found.append(Stage(_linalg.symmetrized(seen.mid), through.mid, free))
        return found


def game_of(mechanism: LinearMechanism, known: tuple[int, ...]) -> Game | None:
    """The game before who knows the models of ``known``; None where noise remembers too much."""
    if mechanism.joint is not None:
        return None
    n, horizon = len(mechanism.transition), mechanism.horizon
    nodes = np.setdiff1d(np.arange(n), known)
    memory = _memory(mechanism.strategy)
    draws = mechanism.state_noise.shape[1]
    # One evaluation of a step takes seconds from 1,200 states, a search minutes from 60,000
    # multipliers.
    states = len(nodes) + memory.depth * draws
    if states > 1200 or horizon * len(nodes) > 60_000:
        return None
    products = horizon * states**3 if memory.depth else 0
    if products > MOST_PRODUCTS:
        return None
    phases = [step.restricted(nodes) for step in mechanism.steps]

    def system(t: int) -> Step:
        step = phases[t % len(phases)]
        return step if memory.depth == 0 else memory.remembered(step, t)

    constant = len(phases) == 1 and memory.constant
    return Game(
        system=system,
        horizon=horizon,
        nodes=nodes,
        constant=constant,
        active=_active(phases, horizon),
        most_patterns=MOST_PRODUCTS / products if products else math.inf,
    )


def _active(phases: list[Step], horizon: int) -> NDArray[np.bool_]:
    """Nodes whose models at a step reach an observation at it or later."""
    active = np.zeros((horizon, len(phases[0].transition)), dtype=bool)
    for t in reversed(range(horizon)):
        step = phases[t % len(phases)]
        active[t] = (step.output != 0).any(axis=0)
        if t + 1 < horizon:
            active[t] |= (step.transition[active[t + 1]] != 0).any(axis=0)
    return active


@dataclass(frozen=True, kw_only=True)
class _Memory:
    """Noise N_t = own_t z_t + sum_j weights_t[j] h_j, h the last ``depth`` values that count: of N
    itself where C has few bands, of z where C^-1 has fewer."""

    depth: int
    coefficients: Array
    of_noise: bool
    constant: bool

    def remembered(self, step: Step, t: int) -> Step:
        """The step on the longer state (models, h_1, ..., h_depth), the latest first."""
        # What lies before the first step is zero: weights of later rows do no harm there.
        t = max(t, min(self.depth, len(self.coefficients) - 1)) if self.constant else t
        row, count = self.coefficients[t], min(self.depth, t)
        weights = np.zeros(self.depth)
        weights[:count] = row[t - count : t][::-1]
        own = float(row[t])
        if self.of_noise:
            weights, own = -weights / own, 1 / own
        draws = step.state_noise.shape[1]
        size = self.depth * draws
        spread = np.kron(weights, np.eye(draws))
        latest = spread if self.of_noise else np.zeros_like(spread)
        shift = np.vstack([latest, np.eye(size - draws, size)])
        kept = np.zeros((size, draws))
        kept[:draws] = np.eye(draws) * (own if self.of_noise else 1.0)
        n = len(step.transition)
        return Step(
            transition=np.block(
                [[step.transition, step.state_noise @ spread], [np.zeros((size, n)), shift]]
            ),
            output=np.hstack([step.output, step.output_noise @ spread]),
            state_noise=np.vstack([own * step.state_noise, kept]),
            output_noise=own * step.output_noise,
        )


def _memory(strategy: Array | None) -> _Memory:
    """The memory of noise, by the shorter of two descriptions."""
    if strategy is None:
        return _Memory(depth=0, coefficients=np.zeros((0, 0)), of_noise=False, constant=True)
    noising = scipy.linalg.solve_triangular(strategy, np.eye(len(strategy)), lower=True)
    bands = [_bands(strategy), _bands(noising)]
    of_noise = bands[0] <= bands[1]
    coefficients = strategy if of_noise else noising
    change = np.abs(coefficients[1:, 1:] - coefficients[:-1, :-1]).max(initial=0.0)
    return _Memory(
        depth=min(bands),
        coefficients=coefficients,
        of_noise=of_noise,
        constant=bool(change <= ROUNDING * np.abs(coefficients).max()),
    )


def _bands(lower: Array) -> int:
    """Number of diagonals below the main one that a lower triangular matrix has."""
    rows, columns = np.nonzero(np.abs(lower) > ROUNDING * np.abs(lower).max())
    return int((rows - columns).max(initial=0))
