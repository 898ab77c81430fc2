"""The mechanisms of :data:`MECHANISMS`: their unit noise, and what it protects from whom."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError, describe, did_you_mean
from noisedesign.base.linalg import inverse_of_positive
from noisedesign.base.shown import Shown
from noisedesign.design.design import PROTECTS, Design
from noisedesign.design.solve import INTERRUPTED, solve
from noisedesign.forms import Noise
from noisedesign.forms.strategies import DenseStrategy
from noisedesign.forms.streams import covariance_root
from noisedesign.forms.structure import SpaceStructure
from noisedesign.mechanisms.baselines import banded_square_root, baseline
from noisedesign.noise.plan import CHANGE_OVER_CLIP
from noisedesign.privacy import accounting, exposure, views
from noisedesign.privacy.amplification import bins_of
from noisedesign.privacy.runs import ANY, Responses
from noisedesign.privacy.sensitivity import squared_sensitivity
from noisedesign.privacy.target import PrivacyTarget
from noisedesign.problem.default_cap import uncapped
from noisedesign.problem.problem import Problem, SpaceProblem, SpaceTimeProblem, TimeProblem
from noisedesign.system.participation import Participation
from noisedesign.system.random_mixing import RandomMixing
from noisedesign.system.workloads import ErrorMeasure
from noisedesign_lab.training.noise import MessageNoise, NodeNoise, Source, common_noise

FIELD = "mechanisms"
NOTHING = "nothing"
# A server is trusted with everything but what it releases.
EVERY_MESSAGE, THE_AVERAGE = PROTECTS["local"], PROTECTS["central"]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Network(Shown):
    """The network that noise is designed for: W, (n, n) or (P, n, n), K gossip ``rounds``, a cap on
    diag(R) (squared, at unit budgets), and the target of designs for random participation."""

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
    """Unit noise, and its account: the squared sensitivity of what is seen to changes of 1 a step;
    ``excess`` is the factor (standard deviation) by which published noise exceeds its budget, and
    ``strategy`` is C, (T, T), where a record is seen through C in white noise of unit variance."""

    name: str = ""
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
        """Return the standard deviation of the noise over the clip that meets a target."""
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
            got = f"epsilon = {target.epsilon:g} for {self.name}"
            raise InputError(FIELD, expected="a budget that some finite noise meets", got=got)
        return self.excess * stddev


class Kind(NamedTuple):
    """A mechanism of the catalogue: how it is made, whether for batches drawn at random, and
    whether its name ends in a number, of gossip rounds or bands."""

    make: Callable[..., Mechanism]
    random: bool = False
    numbered: bool = False


def mechanism(name: str, network: Network) -> Mechanism:
    """Return a mechanism by its name; one that a network cannot have is refused."""
    _checks.instance(network, Network, field="network", expected="a Network")
    participation = network.participation
    kind, number = kind_of(name)
    if not kind.random:  # noise is that of batches in any order
        network = replace(network, participation=network.participation.fixed)
    try:
        made = kind.make(network) if number is None else kind.make(network, number)
    except InputError as error:
        expected = f"mechanisms that this network can have ({error.field}: {error.expected})"
        got = f"{name}: {error.got}"
        raise InputError(FIELD, expected=expected, got=got, remedy=error.remedy) from error
    used = None if made.source is None else participation
    return replace(made, name=name, participation=used)


def kind_of(name: Any) -> tuple[Kind, int | None]:
    if isinstance(name, str):
        if name in MECHANISMS and not MECHANISMS[name].numbered:
            return MECHANISMS[name], None
        found = re.fullmatch(r"(.+)-([1-9][0-9]{0,5})", name)
        if found is not None and found[1] in MECHANISMS and MECHANISMS[found[1]].numbered:
            return MECHANISMS[found[1]], int(found[2])
    known = known_names()
    expected = "one of " + ", ".join(known)
    raise InputError(FIELD, expected=expected, got=describe(name), remedy=did_you_mean(name, known))


def known_names() -> tuple[str, ...]:
    """Names of the mechanisms, K standing for a number."""
    return tuple(f"{name}-K" if kind.numbered else name for name, kind in MECHANISMS.items())


def check_names(names: Any) -> tuple[str, ...]:
    """Return names of mechanisms, each a text and there once."""
    given = _checks.listed(names, field=FIELD, expected="a list of names")
    if not given:
        raise InputError(FIELD, expected="one or more names", got="none")
    for index, name in enumerate(given):
        if not isinstance(name, str):
            raise InputError(FIELD, expected="names of mechanisms", got=describe(name))
        if name in given[:index]:
            raise InputError(FIELD, expected="every mechanism once", got=f"{name} twice")
    return tuple(given)


# --- without a design -----------------------------------------------------------------------------


def _none(network: Network) -> Mechanism:
    return Mechanism(
        source=None, sensitivity_squared=math.inf, protects=NOTHING, rounds=network.rounds
    )


def _ldp(network: Network) -> Mechanism:
    """Make independent noise, of which every participation adds its square."""
    return Mechanism(
        source=NodeNoise(),
        sensitivity_squared=float(network.participation.largest_size),
        rounds=network.rounds,
        strategy=np.eye(network.horizon),
    )


def _bsr(network: Network, bands: int) -> Mechanism:
    strategy = banded_square_root(horizon=network.horizon, bands=min(bands, network.horizon))
    sensitivity = squared_sensitivity(strategy.T @ strategy, network.participation)
    return Mechanism(
        source=NodeNoise(noising=DenseStrategy(strategy=strategy).dense_noising()),
        sensitivity_squared=sensitivity.squared,
        rounds=network.rounds,
        strategy=strategy,
    )


def _server(network: Network, variance: float, *, excess: float = 1.0) -> Mechanism:
    """Make one noise for all, of variance v on the average, which moves by 1/n of a change."""
    n = network.nodes
    return Mechanism(
        source=common_noise(n, variance=variance),
        sensitivity_squared=network.participation.largest_size / (n * n * variance),
        protects=THE_AVERAGE,
        server=True,
        excess=excess,
        strategy=np.eye(network.horizon) / (n * math.sqrt(variance)),
    )


def _zip_dl(network: Network) -> Mechanism:
    changes = network.random is not None or np.ndim(network.mixing) > 2
    if changes or network.rounds > 1:
        expected = "one round of a W that is the same at every step"
        got = "one that changes" if changes else "several rounds"
        remedy = "Noise on messages cancels under the weights it was made for."
        raise InputError("mixing", expected=expected, got=got, remedy=remedy)
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
        expected = "a class of losses, or fixed, for noise on messages over several steps"
        remedy = (
            "The model that a node keeps is hidden from who reads its messages, so that "
            "gradients which answer to it in any way may tell everything."
        )
        raise InputError("responses", expected=expected, got=str(network.responses), remedy=remedy)
    return Mechanism(
        source=MessageNoise(mixing=network.mixing),
        sensitivity_squared=worst.sensitivity_squared,
        responses=worst.responses,
    )


# --- designs --------------------------------------------------------------------------------------


def of_design(design: Design, *, name: str, rounds: int = 1) -> Mechanism:
    """Make a mechanism of a feasible design that protects every message and says how long."""
    if not design.certificate.feasible or design.trust != "local":
        expected = "a feasible design that protects every message"
        raise InputError("design", expected=expected, got=describe(design))
    if design.problem.use is None:
        expected = "a design that says how long it is used"
        raise InputError("participation", expected=expected, got="nothing")
    use, strategy, squared = design.problem.use, _strategy(design), design.problem.sensitivity**2
    if use.random and strategy is not None:  # what sensitivity says there is of no fixed batches
        squared = bins_of(strategy, use).sensitivity_squared
    return Mechanism(
        name=name,
        source=_source(design.noise),
        sensitivity_squared=squared,
        participation=use,
        rounds=rounds,
        design=design,
        strategy=strategy,
    )


def _strategy(design: Design) -> Array | None:
    """Return C of what a reader of all messages sees of one record, at the most exposed node."""
    noise = design.noise
    if noise.full:
        return None
    use = design.problem.use
    assert use is not None
    white = noise.strategy is None
    strategy = np.eye(use.horizon) if noise.strategy is None else noise.strategy.dense()
    if noise.space is None:
        return strategy
    # Of node u, others' noise leaves a variance of 1 / [R^-1]_uu; a budget above it holds even
    # before who knows some seeds.
    told = float(np.diag(inverse_of_positive(noise.covariance)).max()) * (1 + 1e-9)  # rounding
    budget = design.problem.sensitivity**2 / (use.largest_size if white else 1)
    return np.asarray(strategy * math.sqrt(max(told, budget)))


def _source(noise: Noise) -> NodeNoise:
    root = None if noise.full or noise.space is None else covariance_root(noise.covariance)
    noising = None if noise.strategy is None else noise.strategy.dense_noising()
    return NodeNoise(root=root, noising=noising, full=noise.full)


def _fields(network: Network) -> dict[str, Any]:
    """Return the arguments that every problem of a network shares."""
    shared = ("mixing", "participation", "random", "rounds")
    return {name: getattr(network, name) for name in shared}


def _solved(network: Network, problem: Problem, *, gap: float | None = None) -> Mechanism:
    found = solve(uncapped(problem), gap=gap)  # a cap is a key of training files, and stated
    if found.status == INTERRUPTED:
        raise KeyboardInterrupt
    assert found.design is not None
    return of_design(found.design, name="", rounds=network.rounds)


def _in_space(network: Network, *, horizon: bool, kind: str = "dense") -> Mechanism:
    """Make noise that is correlated across nodes, optimal for one step or for all iterates."""
    problem = SpaceProblem(
        **_fields(network),
        error=ErrorMeasure(horizon=network.horizon) if horizon else None,
        structure=SpaceStructure(kind=kind),
        max_variance=network.max_variance,
    )
    return _solved(network, problem)


def _in_time(network: Network) -> TimeProblem:
    return TimeProblem.decentralized(**_fields(network))


def _published(network: Network, name: str) -> Mechanism:
    return of_design(baseline(_in_time(network), name), name="", rounds=network.rounds)


def _in_both(network: Network, *, gap: float | None = None, **how: Any) -> Mechanism:
    """Make noise that is correlated across nodes and steps."""
    problem = SpaceTimeProblem(**_fields(network), max_variance=network.max_variance, **how)
    return _solved(network, problem, gap=gap)


def _target(network: Network) -> PrivacyTarget:
    if not network.participation.binned:
        got = str(network.participation)
        remedy = "Take mafalda or kronecker, the optima for batches in any order."
        raise InputError("participation.kind", expected='"balls-in-bins"', got=got, remedy=remedy)
    if network.target is None:
        expected = "budgets by epsilon, one of which the design is for"
        raise InputError("epsilons", expected=expected, got="none")
    return network.target


MECHANISMS: dict[str, Kind] = {  # the catalogue, by name; docs/guides/training.md describes each
    "none": Kind(_none),
    "ldp": Kind(_ldp),
    # Noise of variance sigma^2 / n^2 is what the released average needs, as one record moves it by
    # 1/n of its change; sigma^2 / n, as published elsewhere, is what ldp leaves in an exact
    # average. Before a reader of that average alone it is sqrt(n) times too much, and its mu says
    # so: the sigma is that of cdp-n2, sqrt(n) times what the budget asks.
    "cdp-n2": Kind(lambda network: _server(network, 1 / network.nodes**2)),
    "cdp-n": Kind(
        lambda network: _server(network, 1 / network.nodes, excess=math.sqrt(network.nodes))
    ),
    "antipgd": Kind(partial(_published, name="antipgd")),
    "d-mf": Kind(partial(_published, name="d-mf")),
    "mafalda": Kind(lambda network: _solved(network, _in_time(network))),
    "whisper": Kind(partial(_in_space, horizon=False)),
    "whisper-horizon": Kind(partial(_in_space, horizon=True)),
    "decor": Kind(partial(_in_space, horizon=False, kind="decor")),
    "edge-local": Kind(partial(_in_space, horizon=True, kind="edge-local")),
    "kronecker": Kind(_in_both),
    "mafalda-edge-local": Kind(partial(_in_both, space=SpaceStructure(kind="edge-local"))),
    "modal": Kind(partial(_in_both, joint="modal")),
    "zip-dl": Kind(_zip_dl),
    "amplified": Kind(
        lambda network: _solved(network, replace(_in_time(network), privacy=_target(network))),
        random=True,
    ),
    # The search stops at relative gains of 1e-3: samples do not resolve less.
    "amplified-kronecker": Kind(
        lambda network: _in_both(network, privacy=_target(network), gap=1e-3), random=True
    ),
    # Before a reader of every message all rounds follow from the first.
    "muffliato": Kind(lambda network, rounds: replace(_ldp(network), rounds=rounds), numbered=True),
    "bsr": Kind(_bsr, numbered=True),
}

# Those that are designed for batches drawn at random.
RANDOM = tuple(name for name, kind in MECHANISMS.items() if kind.random)
