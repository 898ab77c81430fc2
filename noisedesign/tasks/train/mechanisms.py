"""The mechanisms a run may be protected by: their unit noise, and what it protects from whom.

A new mechanism is a function of a :class:`Network` and a line of :data:`MECHANISMS`, or of
:data:`WITH_NUMBER` where its name ends in one, of gossip rounds or bands.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError, describe
from noisedesign.base.linalg import inverse_of_positive
from noisedesign.base.shown import Shown
from noisedesign.files.schema import did_you_mean
from noisedesign.noise.plan import CHANGE_OVER_CLIP
from noisedesign.privacy import accounting, exposure, views
from noisedesign.privacy.amplification import bins_of
from noisedesign.privacy.runs import ANY, Responses
from noisedesign.privacy.sensitivity import squared_sensitivity
from noisedesign.privacy.target import PrivacyTarget
from noisedesign.program.design import PROTECTS, Design
from noisedesign.program.noise import Noise
from noisedesign.program.noise.strategies import DenseStrategy
from noisedesign.program.noise.streams import covariance_root
from noisedesign.program.problem import Problem, SpaceProblem, SpaceTimeProblem, TimeProblem
from noisedesign.program.structure import SpaceStructure
from noisedesign.system.participation import Participation
from noisedesign.system.random_mixing import RandomMixing
from noisedesign.system.workloads import ErrorMeasure
from noisedesign.tasks.baselines import banded_square_root, baseline
from noisedesign.tasks.solve import INTERRUPTED, solve
from noisedesign.training.noise import MessageNoise, NodeNoise, Source, common_noise

FIELD = "mechanisms"

SEARCHED = 1e-3
"""Relative gain below which a search in both space and time stops: samples do not resolve less."""

ROUNDING = 1e-9
"""Relative error of a diagonal of R^-1."""

NOTHING = "nothing"
EVERY_MESSAGE, THE_AVERAGE = PROTECTS["local"], PROTECTS["central"]
"""What a budget is for. A server is trusted with everything but what it releases."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Network(Shown):
    """What noise is designed for.

    Attributes:
        mixing: W, shape (n, n), or a schedule of P of them, shape (P, n, n); the W without failures
            where it is ``random``.
        participation: in which steps one record may take part.
        random: the distribution W is drawn from at every round; None: W is what it is.
        rounds: K, gossip rounds a step.
        max_variance: cap on diag(R) of dealt noise and shared seeds (squared, at unit budgets),
            without which noise on some graphs grows without bound; None: none.
        target: what designs for random participation are made for, which depend on it; other noise
            is the same for all.
        responses: how gradients answer to models, which noise on messages has to know.
    """

    mixing: Array
    participation: Participation
    random: RandomMixing | None = None
    rounds: int = 1
    max_variance: float | None = None
    target: PrivacyTarget | None = None
    responses: Responses = ANY

    @property
    def nodes(self) -> int:
        """n."""
        return int(np.shape(self.mixing)[-1])

    @property
    def horizon(self) -> int:
        """T."""
        return self.participation.horizon


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Mechanism(Shown):
    """Unit noise, and its account.

    Attributes:
        source: the noise; None: none.
        sensitivity_squared: of what the adversary sees to one record in all its participations,
            whose contribution changes by at most 1 a step, for unit noise; infinite without noise.
        participation: in which steps one record may take part, by that account; None: no noise.
        protects: from whom: "every message" from a reader of all messages, "the released average
            only" from a reader of what a trusted server releases, "nothing".
        rounds: K, gossip rounds a step.
        server: the average of all nodes takes the place of gossip.
        excess: how many times louder it is, as published, than its budget asks (standard
            deviation).
        design: the certified design that it is of; None where it is in closed form.
        strategy: C, shape (T, T), where what the adversary sees of one record is C times its
            contributions in white noise of unit variance; None where that is not so.
        responses: how gradients may answer to models for the account to hold.
    """

    name: str
    source: Source | None
    sensitivity_squared: float
    participation: Participation | None = None
    protects: str = EVERY_MESSAGE
    rounds: int = 1
    server: bool = False
    excess: float = 1.0
    design: Design | None = None
    strategy: Array | None = None
    responses: str = "any"

    def mu(self, *, noise_multiplier: float, adjacency: str) -> float:
        """GDP parameter of noise of that standard deviation over the clip; infinite for none."""
        if self.source is None:
            return math.inf
        change = CHANGE_OVER_CLIP[adjacency]
        return change * math.sqrt(self.sensitivity_squared) / noise_multiplier

    def epsilon(self, *, noise_multiplier: float, delta: float, adjacency: str) -> float | None:
        """Smallest epsilon at delta; None where none holds."""
        mu = self.mu(noise_multiplier=noise_multiplier, adjacency=adjacency)
        return None if math.isinf(mu) else exposure.epsilon_at(mu, delta)

    def noise_multiplier(self, target: PrivacyTarget) -> float:
        """Standard deviation of the noise over the clip that meets a target; 0 without noise.

        Raises:
            InputError: a target that no finite noise meets.
        """
        if self.source is None:
            return 0.0
        stddev = accounting.noise_stddev_for(
            sensitivity_squared=self.sensitivity_squared,
            epsilon=target.epsilon,
            delta=target.delta,
            clip=1.0,
            adjacency=target.adjacency,
        )
        if not math.isfinite(stddev):
            raise InputError(
                FIELD,
                expected="a budget that some finite noise meets",
                got=f"epsilon = {target.epsilon:g} for {self.name}",
            )
        return self.excess * stddev


def mechanism(name: str, network: Network) -> Mechanism:
    """The mechanism of that name on a network.

    =================  ============================================================================
    none               no noise
    ldp                independent noise at every node and step
    cdp-n2             a trusted server adds noise of variance sigma^2 / n^2 to the average: what
                       the released average needs, as one record moves it by 1/n of its change
    cdp-n              a trusted server adds noise of variance sigma^2 / n, as published elsewhere:
                       what the noise of ldp leaves in an exact average. Before a reader of that
                       average alone it is sqrt(n) times too much, and its mu says so
    antipgd            each step's noise taken back at the next
    d-mf               in time, optimal for prefix sums
    mafalda            in time, optimal for all iterates under W
    whisper            across nodes, dealt, optimal for one step, as published (CorN-DSGD)
    whisper-horizon    the same, optimal for all iterates
    decor              one noise for every edge, all edges alike, the best for one step
    edge-local         one noise for every edge, each of its own scale, for all iterates
    kronecker          across nodes and steps at once, a product of a C and an R
    mafalda-edge-local the same with an R of pairwise seeds
    modal              across nodes and steps at once, a C for every mixture of the nodes' noise
    bsr-K              in time, a square root of prefix sums with K bands, as "bsr-8" (Kalinin and
                       Lampert 2024); no entry of its C is negative
    amplified          in time, C without negative entries, the best found for batches drawn at
                       random and the target of the network
    amplified-kronecker the same across nodes and steps at once
    muffliato-K        independent noise and K gossip rounds a step, as "muffliato-10"
    zip-dl             noise on every message, zero-sum over the closed neighbourhood
    =================  ============================================================================

    Budgets are against a reader of every message, but those of the two with a trusted server. Where
    the participation is random, noise is that of the scheme without randomness, but for the designs
    that are made for it.

    Raises:
        InputError: naming ``mechanisms``: an unknown name, one that this network cannot have.
    """
    _checks.instance(network, Network, field="network", expected="a Network")
    participation = network.participation
    build, number = _builder(name)
    if name not in RANDOM:
        network = replace(network, participation=network.participation.fixed)
    try:
        made = build(network) if number is None else build(network, number)
    except InputError as error:
        raise InputError(
            FIELD,
            expected=f"mechanisms that this network can have ({error.field}: {error.expected})",
            got=f"{name}: {error.got}",
            remedy=error.remedy,
        ) from error
    used = None if made.source is None else participation
    return replace(made, name=name, participation=used)


def check_name(name: Any) -> str:
    """A name that :func:`mechanism` knows.

    Raises:
        InputError: naming ``mechanisms``, with those there are.
    """
    _builder(name)
    return str(name)


def _builder(name: Any) -> tuple[Callable[..., Mechanism], int | None]:
    known = known_names()
    if isinstance(name, str):
        if name in MECHANISMS:
            return MECHANISMS[name], None
        if name in RANDOM:
            return RANDOM[name], None
        found = re.fullmatch(r"(.+)-([1-9][0-9]{0,5})", name)
        if found is not None and found[1] in WITH_NUMBER:
            return WITH_NUMBER[found[1]], int(found[2])
    expected = "one of " + ", ".join(known)
    raise InputError(FIELD, expected=expected, got=describe(name), remedy=did_you_mean(name, known))


def known_names() -> tuple[str, ...]:
    """Names of the mechanisms, K standing for a number."""
    return *MECHANISMS, *RANDOM, *(f"{name}-K" for name in WITH_NUMBER)


# --- without a design -----------------------------------------------------------------------------


def _none(network: Network) -> Mechanism:
    return Mechanism(
        name="", source=None, sensitivity_squared=math.inf, protects=NOTHING, rounds=network.rounds
    )


def _ldp(network: Network) -> Mechanism:
    """Independent noise: every participation adds its square."""
    return Mechanism(
        name="",
        source=NodeNoise(),
        sensitivity_squared=float(network.participation.largest_size),
        rounds=network.rounds,
        strategy=np.eye(network.horizon),
    )


def _bsr(network: Network, bands: int) -> Mechanism:
    strategy = banded_square_root(horizon=network.horizon, bands=min(bands, network.horizon))
    sensitivity = squared_sensitivity(strategy.T @ strategy, network.participation)
    return Mechanism(
        name="",
        source=NodeNoise(noising=DenseStrategy(strategy=strategy).dense_noising()),
        sensitivity_squared=sensitivity.squared,
        rounds=network.rounds,
        strategy=strategy,
    )


def _muffliato(network: Network, rounds: int) -> Mechanism:
    """As independent noise before a reader of every message: all rounds follow from the first."""
    return replace(_ldp(network), rounds=rounds)


def _server(network: Network, variance: float) -> Mechanism:
    """One noise for all. The average moves by 1/n of a change, so that noise of variance v on it
    has squared sensitivity 1 / (n^2 v) a step."""
    n = network.nodes
    return Mechanism(
        name="",
        source=common_noise(n, variance=variance),
        sensitivity_squared=network.participation.largest_size / (n * n * variance),
        protects=THE_AVERAGE,
        server=True,
        strategy=np.eye(network.horizon) / (n * math.sqrt(variance)),
    )


def _cdp_n2(network: Network) -> Mechanism:
    return _server(network, 1 / network.nodes**2)


def _cdp_n(network: Network) -> Mechanism:
    # The sigma of cdp-n2, which for this variance is sqrt(n) times what the budget asks.
    return replace(_server(network, 1 / network.nodes), excess=math.sqrt(network.nodes))


def _zip_dl(network: Network) -> Mechanism:
    changes = network.random is not None or np.ndim(network.mixing) > 2
    if changes or network.rounds > 1:
        raise InputError(
            "mixing",
            expected="one round of a W that is the same at every step",
            got="one that changes" if changes else "several rounds",
            remedy="Noise on messages cancels under the weights it was made for.",
        )
    algorithm = views.zip_dl(mixing=network.mixing, horizon=network.horizon)
    found = exposure.account(
        algorithm,
        views.ldp(),
        participation=network.participation,
        delta=None,
        responses=network.responses,
    )
    worst = max(found, key=lambda one: one.sensitivity_squared)
    if math.isinf(worst.sensitivity_squared):
        raise InputError(
            "responses",
            expected="a class of losses, or fixed, for noise on messages over several steps",
            got=str(network.responses),
            remedy="The model that a node keeps is hidden from who reads its messages, so that "
            "gradients which answer to it in any way may tell everything.",
        )
    return Mechanism(
        name="",
        source=MessageNoise(mixing=network.mixing),
        sensitivity_squared=worst.sensitivity_squared,
        responses=worst.responses,
    )


# --- designs --------------------------------------------------------------------------------------


def of_design(design: Design, *, name: str, rounds: int = 1) -> Mechanism:
    """A certified design as a mechanism.

    Raises:
        InputError: a design that is not feasible, that does not protect every message, or of which
            nobody said how long its noise is used.
    """
    if not design.certificate.feasible or design.trust != "local":
        raise InputError(
            "design", expected="a feasible design that protects every message", got=describe(design)
        )
    if design.problem.use is None:
        raise InputError(
            "participation", expected="a design that says how long it is used", got="nothing"
        )
    use, strategy, sensitivity = design.problem.use, _strategy(design), design.problem.sensitivity
    if use.random and strategy is not None:  # what sensitivity says there is of no fixed batches
        sensitivity = math.sqrt(bins_of(strategy, use).sensitivity_squared)
    return Mechanism(
        name=name,
        source=_source(design.noise),
        sensitivity_squared=sensitivity**2,
        participation=use,
        rounds=rounds,
        design=design,
        strategy=strategy,
    )


def _strategy(design: Design) -> Array | None:
    """C of what a reader of all messages sees of one record, at the node that shows most.

    What the others' noise tells of that of node u being taken off, variance 1 / [R^-1]_uu is left;
    a budget above it is one that holds even before who knows some of the seeds.
    """
    noise = design.noise
    if noise.full:
        return None
    use = design.problem.use
    assert use is not None
    white = noise.strategy is None
    strategy = np.eye(use.horizon) if noise.strategy is None else noise.strategy.dense()
    if noise.space is None:
        return strategy
    told = float(np.diag(inverse_of_positive(noise.covariance)).max()) * (1 + ROUNDING)
    budget = design.problem.sensitivity**2 / (use.largest_size if white else 1)
    return np.asarray(strategy * math.sqrt(max(told, budget)))


def _source(noise: Noise) -> NodeNoise:
    root = None if noise.full or noise.space is None else covariance_root(noise.covariance)
    noising = None if noise.strategy is None else noise.strategy.dense_noising()
    return NodeNoise(root=root, noising=noising, full=noise.full)


def _fields(network: Network) -> dict[str, Any]:
    """What every problem of a network has in common."""
    return {
        "mixing": network.mixing,
        "participation": network.participation,
        "random": network.random,
        "rounds": network.rounds,
    }


def _spatial(network: Network, *, horizon: bool, kind: str = "dense") -> SpaceProblem:
    error = ErrorMeasure(horizon=network.horizon) if horizon else None
    return SpaceProblem(
        **_fields(network),
        error=error,
        structure=SpaceStructure(kind=kind),
        max_variance=network.max_variance,
    )


def _solved(network: Network, problem: Problem, *, gap: float | None = None) -> Mechanism:
    found = solve(problem, gap=gap)
    if found.status == INTERRUPTED:
        raise KeyboardInterrupt
    assert found.design is not None
    return of_design(found.design, name="", rounds=network.rounds)


def _published(network: Network, problem: Problem, name: str) -> Mechanism:
    return of_design(baseline(problem, name), name="", rounds=network.rounds)


def _whisper(network: Network) -> Mechanism:
    return _solved(network, _spatial(network, horizon=False))


def _whisper_horizon(network: Network) -> Mechanism:
    return _solved(network, _spatial(network, horizon=True))


def _decor(network: Network) -> Mechanism:
    return _solved(network, _spatial(network, horizon=False, kind="decor"))


def _edge_local(network: Network) -> Mechanism:
    return _solved(network, _spatial(network, horizon=True, kind="edge-local"))


def _in_time(network: Network) -> TimeProblem:
    return TimeProblem.decentralized(**_fields(network))


def _mafalda(network: Network) -> Mechanism:
    return _solved(network, _in_time(network))


def _antipgd(network: Network) -> Mechanism:
    return _published(network, _in_time(network), "antipgd")


def _d_mf(network: Network) -> Mechanism:
    return _published(network, _in_time(network), "d-mf")


def _kronecker(network: Network, kind: str = "dense") -> Mechanism:
    problem = SpaceTimeProblem(
        **_fields(network), space=SpaceStructure(kind=kind), max_variance=network.max_variance
    )
    return _solved(network, problem)


def _modal(network: Network) -> Mechanism:
    problem = SpaceTimeProblem(**_fields(network), joint="modal", max_variance=network.max_variance)
    return _solved(network, problem)


def _mafalda_edge_local(network: Network) -> Mechanism:
    return _kronecker(network, "edge-local")


def _amplified(network: Network) -> Mechanism:
    return _solved(network, replace(_in_time(network), privacy=_target(network)))


def _amplified_kronecker(network: Network) -> Mechanism:
    problem = SpaceTimeProblem(
        **_fields(network), max_variance=network.max_variance, privacy=_target(network)
    )
    return _solved(network, problem, gap=SEARCHED)


def _target(network: Network) -> PrivacyTarget:
    if not network.participation.binned:
        raise InputError(
            "participation.kind",
            expected='"balls-in-bins"',
            got=str(network.participation),
            remedy="Take mafalda or kronecker, the optima for batches in any order.",
        )
    if network.target is None:
        expected = "budgets by epsilon, one of which the design is for"
        raise InputError("epsilons", expected=expected, got="none")
    return network.target


MECHANISMS: dict[str, Callable[[Network], Mechanism]] = {
    "none": _none,
    "ldp": _ldp,
    "cdp-n2": _cdp_n2,
    "cdp-n": _cdp_n,
    "antipgd": _antipgd,
    "d-mf": _d_mf,
    "mafalda": _mafalda,
    "whisper": _whisper,
    "whisper-horizon": _whisper_horizon,
    "decor": _decor,
    "edge-local": _edge_local,
    "kronecker": _kronecker,
    "mafalda-edge-local": _mafalda_edge_local,
    "modal": _modal,
    "zip-dl": _zip_dl,
}
"""Mechanisms by their names."""

RANDOM: dict[str, Callable[[Network], Mechanism]] = {
    "amplified": _amplified,
    "amplified-kronecker": _amplified_kronecker,
}
"""Those that are designed for batches drawn at random."""

WITH_NUMBER: dict[str, Callable[[Network, int], Mechanism]] = {"muffliato": _muffliato, "bsr": _bsr}
"""Those whose name ends in a number: of gossip rounds, of bands."""


def check_names(names: Any) -> tuple[str, ...]:
    """Names of mechanisms, each known and there once.

    Raises:
        InputError: naming ``mechanisms``.
    """
    given = _checks.listed(names, field=FIELD, expected="a list of names")
    if not given:
        raise InputError(FIELD, expected="one or more names", got="none")
    for index, name in enumerate(given):
        if not isinstance(name, str):
            raise InputError(FIELD, expected="names of mechanisms", got=describe(name))
        if name in given[:index]:
            raise InputError(FIELD, expected="every mechanism once", got=f"{name} twice")
    return tuple(given)
