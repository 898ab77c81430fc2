"""The published algorithms by name, with noise that is solved for or taken from a stored design."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.design.design import Design
from noisedesign.design.solve import solve
from noisedesign.families.space_time import MAX_COORDINATES
from noisedesign.mechanisms.baselines import decor_variances, prefix_optimal_strategy
from noisedesign.privacy import views as threats
from noisedesign.privacy.views import Algorithm
from noisedesign.privacy.views.noise import ServerNoise
from noisedesign.problem.default_cap import uncapped
from noisedesign.problem.problem import Problem, SpaceProblem, TimeProblem
from noisedesign.system.participation import (
    FixedEpoch,
    Participation,
    require_fixed_epoch,
    require_room,
)


def algorithm(
    kind: str,
    *,
    mixing: Any,
    participation: Participation,
    nodes: tuple[str, ...] = (),
    **options: Any,
) -> Algorithm:
    """A published algorithm on a graph, for as many steps as the participation has."""
    # Noise that is optimal under W is so for all gossip rounds of a step.
    _checks.one_of(kind, field="algorithm.kind", allowed=KINDS)
    builder = _BUILDERS[kind]
    given = {
        "mixing": mixing,
        "participation": participation,
        "horizon": participation.horizon,
        "nodes": nodes,
    }
    taken = inspect.signature(builder).parameters
    asked = {key: of for key, of in taken.items() if key not in (*given, "variance")}
    for key in options:
        if key not in asked:
            expected = f"{', '.join(asked) or 'no options'} for {kind}"
            raise InputError(f"algorithm.{key}", expected=expected, got=key)
    for key, parameter in asked.items():
        if parameter.default is parameter.empty and key not in options:
            raise InputError(f"algorithm.{key}", expected=f"a value for {kind}", got="nothing")
    common = {name: value for name, value in given.items() if name in taken}
    return builder(**common, **options).named(kind, nodes=nodes)


def of_design(
    design: Design, *, participation: Participation, mixing: Any = None, nodes: tuple[str, ...] = ()
) -> Algorithm:
    """The algorithm that runs with the noise of a design, unscaled, for so many steps."""
    # The leading block of a strategy for more steps is exact: C is lower triangular.
    # For W that is drawn, observers who do not see all messages are bounded by those who do.
    w, names = _graph(design.problem, mixing, nodes)
    count, horizon = np.shape(w)[-1], participation.horizon
    if design.trust == "central":
        found = _of_server(design, count, horizon)
        return found.named(design.problem.name, nodes=names)
    if design.axes == "space":
        found = threats.whisper(mixing=w, covariance=design.covariance, horizon=horizon)
    elif design.axes == "time":
        found = threats.mf_d_sgd(mixing=w, strategy=_leading(design.strategy, horizon))
    else:
        covariance = _first_joint_steps(design, count, horizon)
        found = threats.space_time(mixing=w, covariance=covariance, horizon=horizon)
    drawn = mixing is None and design.problem.random is not None
    found = replace(found, rounds=design.problem.rounds, drawn=drawn)
    return found.named(design.problem.name, nodes=names)


def _of_server(design: Design, nodes: int, horizon: int) -> Algorithm:
    """The algorithm of a trusted server, where every model is the average that it releases."""
    strategy, deviation = None, 1 / nodes
    if design.noise.space is not None:
        deviation = float(np.sqrt(design.covariance.sum())) / nodes
    average = np.full((nodes, nodes), 1 / nodes)
    if design.noise.strategy is not None:
        strategy = _leading(design.strategy, horizon)
    noise = ServerNoise(stddev=deviation, count=nodes, strategy=strategy)
    return Algorithm(name="cdp", mixing=average, horizon=horizon, noise=noise)


def _first_joint_steps(design: Design, nodes: int, horizon: int) -> Array:
    """Covariance of all noise of the first steps of a space-time design, shape (n T, n T)."""
    planned = design.noise.steps
    if planned is None or planned < horizon:
        expected = f"a design of at least {horizon} steps, as the participation has"
        raise InputError("design", expected=expected, got=f"one of {planned}")
    if nodes * horizon > MAX_COORDINATES:
        most = f"at most {MAX_COORDINATES} pairs of node and step"
        expected = f"{most} for an account of a space-time design"
        raise InputError("design", expected=expected, got=f"{nodes} * {horizon}")
    if design.noise.full:
        noising = design.noising_matrix[: nodes * horizon, : nodes * horizon]
        return np.asarray(noising @ noising.T)
    noising = design.noising_matrix[:horizon, :horizon]
    return np.asarray(np.kron(noising @ noising.T, design.covariance))


def _graph(problem: Problem, mixing: Any, nodes: tuple[str, ...]) -> tuple[Any, tuple[str, ...]]:
    """W and names of its nodes: those asked for, else those of the problem."""
    if mixing is None:
        if problem.mixing is None:
            expected = "a graph for a design that has none"
            remedy = "The design is for one model; an account needs a network that uses it."
            raise InputError("graph", expected=expected, got="nothing", remedy=remedy)
        fixed = problem.schedule is None
        return problem.mixing if fixed else problem.schedule, problem.nodes
    w = _checks.square_matrices(mixing, field="mixing")
    if problem.mixing is not None and w.shape[1] != len(problem.mixing):
        expected = f"a design for {w.shape[1]} nodes, as the graph has"
        raise InputError("design", expected=expected, got=f"one for {len(problem.mixing)}")
    return w, nodes


def _leading(strategy: Any, horizon: int, *, what: str = "design") -> Array:
    """The leading block of C, shape (T, T), once the whole is a strategy."""
    whole = threats.mf_d_sgd(mixing=np.ones((1, 1)), strategy=strategy).horizon
    if whole < horizon:
        expected = f"a {what} of at least {horizon} steps, as the participation has"
        raise InputError(what, expected=expected, got=f"one of {whole}")
    return np.asarray(strategy)[:horizon, :horizon]


def _antipgd(mixing: Any, participation: Participation, rounds: int = 1) -> Algorithm:
    require_room(participation)
    return threats.antipgd(mixing=mixing, horizon=participation.horizon, rounds=rounds)


def _cdp(mixing: Any, horizon: int, server_noise: str, strategy: Any = None) -> Algorithm:
    if strategy is not None:
        strategy = _leading(strategy, horizon, what="strategy")
    return threats.cdp(mixing=mixing, horizon=horizon, server_noise=server_noise, strategy=strategy)


def _d_mf(mixing: Any, participation: Participation, rounds: int = 1) -> Algorithm:
    scheme = _fixed_epoch(participation, kind="d-mf")
    strategy = prefix_optimal_strategy(scheme)
    return threats.mf_d_sgd(mixing=mixing, strategy=strategy, rounds=rounds)


def _mafalda(mixing: Any, participation: Participation, rounds: int = 1) -> Algorithm:
    scheme = _fixed_epoch(participation, kind="mafalda")
    with _rounds_of_an_algorithm():
        problem = TimeProblem.decentralized(mixing=mixing, participation=scheme, rounds=rounds)
    return threats.mf_d_sgd(mixing=mixing, strategy=_optimum(problem).strategy, rounds=rounds)


def _mf_d_sgd(mixing: Any, horizon: int, strategy: Any, rounds: int = 1) -> Algorithm:
    leading = _leading(strategy, horizon, what="strategy")
    return threats.mf_d_sgd(mixing=mixing, strategy=leading, rounds=rounds)


def _decor(
    mixing: Any, horizon: int, edge_stddev: float | None = None, rounds: int = 1
) -> Algorithm:
    if edge_stddev is None:
        with _otherwise("Give the pairwise noise itself: algorithm.edge_stddev."):
            own, shared = decor_variances(_in_space(mixing, rounds))
    else:
        scale = _checks.nonnegative(edge_stddev, field="algorithm.edge_stddev")
        own, shared = 1.0, scale * scale
    return threats.decor(
        mixing=mixing, horizon=horizon, node_variance=own, edge_variance=shared, rounds=rounds
    )


def _in_space(mixing: Any, rounds: int) -> SpaceProblem:
    with _rounds_of_an_algorithm():
        return SpaceProblem(mixing=mixing, rounds=rounds)


def _whisper(mixing: Any, horizon: int, covariance: Any = None, rounds: int = 1) -> Algorithm:
    if covariance is None:
        with _otherwise("Give the covariance itself: algorithm.file."):
            covariance = _optimum(_in_space(mixing, rounds)).covariance
    return threats.whisper(mixing=mixing, covariance=covariance, horizon=horizon, rounds=rounds)


_BUILDERS: dict[str, Callable[..., Algorithm]] = {
    "dp-d-sgd": threats.dp_d_sgd,  # independent noise
    "muffliato": threats.muffliato,  # the same, with several gossip rounds
    "antipgd": _antipgd,  # the noise of a step taken back at the next: C of ones, not normalised
    "cdp": _cdp,  # noise of a trusted server on the average, of the variance ``server_noise``
    "d-mf": _d_mf,  # C that is optimal for prefix sums (Mafalda-SGD, section 5)
    "mafalda": _mafalda,  # C that is optimal for all iterates under W
    "mf-d-sgd": _mf_d_sgd,  # any C, lower triangular
    "decor": _decor,  # the best pair at unit budgets, or unit own noise and edges' ``edge_stddev``
    "whisper": _whisper,  # R of a trusted party, by default the best for one step at unit budgets
    "zip-dl": threats.zip_dl,  # unit noise on every message, of every gossip round
    "space-time": threats.space_time,  # any covariance, (n T, n T), rows t * n + u
    "design": of_design,
}
KINDS: tuple[str, ...] = tuple(_BUILDERS)


def _fixed_epoch(participation: Participation, *, kind: str) -> FixedEpoch:
    return require_fixed_epoch(
        participation.fixed,
        field="participation.kind",
        expected=f"fixed-epoch, single or every-step, which the strategy of {kind} is optimal for",
        remedy='Give the strategy itself: algorithm.kind = "mf-d-sgd" with algorithm.file.',
    )


def _optimum(problem: Problem) -> Design:
    found = solve(uncapped(problem))
    if found.status == "interrupted":
        raise KeyboardInterrupt
    assert found.design is not None
    return found.design


@contextmanager
def _rounds_of_an_algorithm() -> Iterator[None]:
    try:
        yield
    except InputError as error:
        if error.field != "workload.rounds":
            raise
        raise error.told(field="algorithm.rounds") from error


@contextmanager
def _otherwise(remedy: str) -> Iterator[None]:
    """Errors with another remedy, for a graph that has no optimal noise."""
    try:
        yield
    except InputError as error:
        raise error.told(remedy=remedy) from error
