"""The view of one observer of one algorithm, as a linear system that is never stacked.

The observations O = A G + B Z (Mafalda-SGD, Definition 4) are kept as x_{t+1} = F (x_t + g_t) + q_t
and y_t = H (x_t + g_t) + r_t, with q_t and r_t linear in the unknown noise of step t."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.base.shown import Shown
from noisedesign.privacy.views.algorithms import Algorithm
from noisedesign.privacy.views.noise import (
    FullView,
    MessageNoise,
    NodeNoise,
    ServerNoise,
    SpaceTimeNoise,
    orthonormal_rows,
)
from noisedesign.privacy.views.observers import Observer


class Step(NamedTuple):
    """The system of one step: F, H, and the factors of q (n rows) and r (as many rows as H)."""

    transition: Array
    output: Array
    state_noise: Array
    output_noise: Array

    def restricted(self, nodes: NDArray[Any]) -> Step:
        """The system of some nodes alone, given by places or a mask."""
        return self._replace(
            transition=self.transition[np.ix_(nodes, nodes)],
            output=self.output[:, nodes],
            state_noise=self.state_noise[nodes],
        )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LinearMechanism(Shown):
    """O = A G + B Z of one observer, who is ``complete`` where he reads all messages; ``full_view``
    is what such a reader with the same knowledge learns, ``noise_scale`` the standard deviation of
    the noise before anything of it was known."""

    transition: Array  # F, shape (n, n)
    output: Array  # H, shape (m, n)
    state_noise: Array  # shape (n, p), q_t = state_noise z_t
    output_noise: Array  # shape (m, p), r_t = output_noise z_t
    horizon: int
    full_view: FullView
    complete: bool
    noise_scale: float
    strategy: Array | None = None  # C, where z = C^-1 times white noise over time, shape (T, T)
    joint: Array | None = None  # or a factor of the covariance of all z, shape (T p, q)
    other_phases: tuple[Step, ...] = ()  # further steps of a schedule, which comes round

    @property
    def steps(self) -> tuple[Step, ...]:
        """The systems of a period: step t has number t modulo their number."""
        first = Step(self.transition, self.output, self.state_noise, self.output_noise)
        return (first, *self.other_phases)

    def gradient_rows(self, gradients: Array) -> list[Array]:
        """A G: (T, n, d) gradients to what is observed at every step, shape (m_t, d)."""
        state, steps = np.zeros(gradients.shape[1:]), self.steps
        seen = []
        for t, gradient in enumerate(gradients):
            now = steps[t % len(steps)]
            state = state + gradient
            seen.append(now.output @ state)
            state = now.transition @ state
        return seen

    def noise_rows(self, white: Array) -> list[Array]:
        """B Z: (T, p, d) white noise (with ``joint``: (q, d)) to what is observed."""
        noise: Array = white
        if self.joint is not None:
            noise = (self.joint @ white).reshape(self.horizon, self.state_noise.shape[1], -1)
        elif self.strategy is not None:
            flat = white.reshape(self.horizon, -1)
            noise = np.asarray(np.linalg.solve(self.strategy, flat)).reshape(white.shape)
        state, steps = np.zeros((len(self.transition), noise.shape[2])), self.steps
        seen = []
        for t, drawn in enumerate(noise):
            now = steps[t % len(steps)]
            seen.append(now.output @ state + now.output_noise @ drawn)
            state = now.transition @ state + now.state_noise @ drawn
        return seen

    def dense(self) -> tuple[Array, Array]:
        """A, shape (m T, n T), and B, rows in the order of time: for systems small enough."""
        t, n = self.horizon, len(self.transition)
        a = np.concatenate(self.gradient_rows(np.eye(t * n).reshape(t, n, t * n)))
        return a, self.dense_noise()

    def dense_victim(self, victim: int) -> Array:
        """The columns of A of one node, shape (m T, T)."""
        gradients = np.zeros((self.horizon, len(self.transition), self.horizon))
        gradients[np.arange(self.horizon), victim, np.arange(self.horizon)] = 1.0
        return np.concatenate(self.gradient_rows(gradients))

    def dense_noise(self) -> Array:
        """B of :meth:`dense` alone."""
        t, p = self.horizon, self.state_noise.shape[1]
        white: Array = np.eye(t * p).reshape(t, p, t * p)
        if self.joint is not None:
            white = np.eye(self.joint.shape[1])
        return np.concatenate(self.noise_rows(white))


def view(algorithm: Algorithm, observer: Observer) -> LinearMechanism:
    """The system of what ``observer`` sees of ``algorithm`` and does not know."""
    check_kinds(algorithm, observer)
    observer = observer.among(algorithm.nodes)
    _check(algorithm, observer)
    if algorithm.drawn:
        observer = replace(observer, sees="all")
    noise, strategy, joint = algorithm.noise, None, None
    if isinstance(noise, MessageNoise):
        phases = zip(noise.phases, algorithm.phases, strict=True)
        steps = [_of_messages(now, w, observer, algorithm.rounds) for now, w in phases]
    else:
        factor = noise.remaining(observer.knows)
        if isinstance(noise, SpaceTimeNoise):
            factor, joint = np.eye(noise.count), factor
        else:
            strategy = noise.strategy
        make = _of_server if isinstance(noise, ServerNoise) else _of_nodes
        steps = [make(w, factor, observer, algorithm.rounds) for w in algorithm.phases]
    return LinearMechanism(
        **steps[0]._asdict(),
        other_phases=tuple(steps[1:]),
        horizon=algorithm.horizon,
        strategy=strategy,
        joint=joint,
        full_view=noise.full_view(observer.knows, algorithm.horizon, rounds=algorithm.rounds),
        complete=observer.sees == "all",
        noise_scale=noise.noise_scale,
    )


def check_kinds(algorithm: Any, observer: Any) -> None:
    """Refuse what is no algorithm or no observer."""
    made = "one that noisedesign.privacy.views makes, as"
    _checks.instance(algorithm, Algorithm, field="algorithm", expected=f"{made} dp_d_sgd(...)")
    _checks.instance(observer, Observer, field="observer", expected=f"{made} ldp()")


def _check(algorithm: Algorithm, observer: Observer) -> None:
    n = len(algorithm.mixing)
    seeds = observer.knows.seeds
    named = set(observer.coalition) | set(observer.listened) | {i for seed in seeds for i in seed}
    for node in sorted(named):
        if node >= n:
            raise InputError("observer.nodes", expected=f"nodes 0 to {n - 1}", got=str(node))
    if len(observer.coalition) == n:
        expected = "at least one node outside the coalition, as a victim"
        raise InputError("observer.nodes", expected=expected, got=f"all {n} nodes")
    shared = {seed for seed in seeds if len(seed) > 1}
    held = algorithm.noise.seeds if isinstance(algorithm.noise, NodeNoise) else None
    for seed in sorted(shared, key=sorted):
        if held is None or seed not in held:
            expected = f"seeds that {algorithm.name} has"
            got = "one shared by nodes " + " and ".join(map(str, sorted(seed)))
            raise InputError("observer.known_seeds", expected=expected, got=got)


def _mean(transition: Array) -> Array:
    """The mean of the models after a step, shape (1, n)."""
    return np.asarray(transition.mean(axis=0, keepdims=True))


def _of_nodes(w: Array, factor: Array, observer: Observer, rounds: int) -> Step:
    """A step of an algorithm whose nodes send one message to all neighbours."""
    transition = np.linalg.matrix_power(w, rounds)
    mean = observer.sees == "mean"
    output = _mean(transition) if mean else _node_rows(w, observer, rounds)
    return Step(transition, output, transition @ factor, output @ factor)


def _of_server(w: Array, factor: Array, observer: Observer, rounds: int) -> Step:
    """A step where nodes get the average alone, under noise; what they send is exact."""
    n = len(w)
    if observer.sees in ("all", "sent"):
        sent = np.eye(n) if observer.sees == "all" else np.eye(n)[list(observer.listened)]
        return Step(w, sent, factor, np.zeros((len(sent), factor.shape[1])))
    return Step(w, _mean(w), factor, factor[:1])


def _node_rows(w: Array, observer: Observer, rounds: int) -> Array:
    """H, an orthonormal basis of S, S W, ..., S W^(K-1) for the rows S seen in a round."""
    n = len(w)
    if observer.sees == "all":
        return np.eye(n)
    coalition = list(observer.coalition)
    inside = np.zeros(n, dtype=bool)
    inside[coalition] = True
    if observer.sees == "sent":
        start = np.eye(n)[list(observer.listened)]
    elif observer.sees == "sums":
        start = w[coalition]
    else:
        received = (w[coalition] != 0).any(axis=0)
        start = np.eye(n)[received | inside]
    others = w
    if coalition and observer.knows_own_noise:
        start = np.where(inside, 0.0, start)
        others = np.where(np.logical_or.outer(inside, inside), 0.0, w)
    basis = orthonormal_rows(start, against=np.zeros((0, n)))
    newest = basis
    for _ in range(rounds - 1):
        if not len(newest):
            break
        newest = orthonormal_rows(newest @ others, against=basis)
        basis = np.vstack([basis, newest])
    return basis


def _of_messages(noise: MessageNoise, w: Array, observer: Observer, rounds: int) -> Step:
    """A step with fresh noise in every round: round k sees W^k (x + g), and earlier noise."""
    if rounds * len(noise.mixing) > 2000:  # the system of one step has gigabytes
        expected = "rounds times nodes at most 2000 where every message has its noise"
        got = f"{rounds} times {len(noise.mixing)}"
        raise InputError("algorithm.rounds", expected=expected, got=got)
    once = _message_rows(noise, w, observer)
    powers = [np.eye(len(w))]
    for _ in range(rounds):
        powers.append(w @ powers[-1])
    passed = [powers[rounds - 1 - k] @ once.state_noise for k in range(rounds)]
    state_noise = np.hstack(passed)
    if observer.sees == "mean":
        return Step(powers[-1], _mean(powers[-1]), state_noise, _mean(state_noise))
    draws = once.state_noise.shape[1]
    output_noise = np.zeros((rounds, len(once.output), rounds, draws))
    for k in range(rounds):
        output_noise[k, :, k] = once.output_noise
        for before in range(k):
            mixed = powers[k - 1 - before] @ once.state_noise
            output_noise[k, :, before] = once.output @ mixed
    return Step(
        transition=powers[-1],
        output=np.vstack([once.output @ power for power in powers[:-1]]),
        state_noise=state_noise,
        output_noise=output_noise.reshape(rounds * len(once.output), rounds * draws),
    )


def _message_rows(noise: MessageNoise, w: Array, observer: Observer) -> Step:
    """The system of one gossip round where every message has a noise of its own."""
    n = len(w)
    inside = set(observer.coalition) if observer.knows_own_noise else set()
    sent: list[tuple[int, int]] = [
        (int(a), int(v)) for v, a in np.argwhere(w != 0) if a != v or noise.self_seen
    ]
    groups: list[list[tuple[tuple[int, int], float]]] = []
    match observer.sees:
        case "all":
            groups = [[(message, 1.0)] for message in sent]
        case "sent":
            groups = [[((a, v), 1.0)] for a, v in sent if a in observer.listened]
        case "received":
            ours = set(observer.coalition)
            groups = [
                [((a, v), 1.0)] for a, v in sent if a not in inside and (v in ours or a in ours)
            ]
        case "sums":
            groups = [
                [((int(v), a), float(w[a, v])) for v in np.flatnonzero(w[a]) if v not in inside]
                for a in observer.coalition
            ]
    offsets = np.concatenate([[0], np.cumsum([len(noise.receivers(a)) for a in range(n)])])
    state_noise = np.zeros((n, int(offsets[-1]) or 1))
    for a in range(n):
        block = slice(int(offsets[a]), int(offsets[a + 1]))
        to = noise.receivers(a)
        state_noise[to, block] += w[to, a, None] * noise.message_factor(a, to, observer.knows)
    output = np.zeros((len(groups), n))
    output_noise = np.zeros((len(groups), state_noise.shape[1]))
    for row, group in enumerate(groups):
        for (a, v), weight in group:
            output[row, a] += weight
            block = slice(int(offsets[a]), int(offsets[a + 1]))
            output_noise[row, block] += weight * noise.message_factor(a, [v], observer.knows)[0]
    return Step(w, output, state_noise, output_noise)
