"""The account: what one observer learns about every victim, in numbers that say which they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import diags_array

from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError
from noisedesign.base.nodes import Node, as_row
from noisedesign.base.shown import Listing, ShownInline
from noisedesign.noise.plan import CHANGE_OVER_CLIP
from noisedesign.privacy import accounting, drawn, runs, views as threats
from noisedesign.privacy.drawn import MIXED_SIGNS, OF_ALL_MESSAGES
from noisedesign.privacy.responses import responsive
from noisedesign.privacy.runs import Responses, Theorem
from noisedesign.privacy.sensitivity import Sensitivity, squared_sensitivity
from noisedesign.privacy.target import ADJACENCIES, DEFAULT_ADJACENCY, DEFAULT_DELTA
from noisedesign.privacy.views.mechanism import LinearMechanism
from noisedesign.privacy.views.noise import MessageNoise, NodeNoise, Noise, ServerNoise, whitening
from noisedesign.privacy.views.observers import arrivals, distances
from noisedesign.system.participation import Participation, require_room as participation_room

UNBOUNDED = "unbounded"  # name of the number where a gradient is seen without noise
OF_RESPONSES = "responses-upper-bound"  # what multipliers prove where gradients answer
NO_SMALLER = (
    "no smaller bound was looked for or proved for the declared losses: fewer steps, nodes or "
    "bands of C may have one"
)
UNAMPLIFIED_MU = "mu_unamplified"  # so that nobody takes epsilon from it where steps are drawn


@dataclass(frozen=True, kw_only=True, repr=False)
class Exposure(ShownInline):
    """Privacy of one victim before one observer.

    Attributes:
        node: name of the victim.
        distance: hops from the victim to the observer; None where there is no path, and for an
            observer that is no node.
        sensitivity_squared: squared sensitivity of what is seen to gradients that change by at most
            one at each step of a pattern, for unit noise; infinite where some have no noise.
        which: name of that number: "vector-exact", one of the upper bounds, or "unbounded"; where
            steps are drawn at random, of ``epsilon``.
        responses: how gradients may answer to models, as for :func:`noisedesign.account`.
        theorem: number of the theorem of docs/runs.md on which the numbers rest.
        lower_bound: squared sensitivity that some losses of the declared class reach, or None.
        mu: GDP parameter, sqrt(sensitivity_squared) * (largest change of a step / clip)
            / noise_multiplier. Where steps are drawn it is that of known ones, and ``epsilon``
            does not follow from it.
        adjacency: for which mu and epsilon are stated.
        epsilon: smallest epsilon at the delta asked for, where steps are drawn a bound, or None.
        delta: that delta.
        random: whether steps are drawn at random, in secret.
        confidence: with which ``epsilon`` holds where samples were taken; None without.
        epsilon_estimate: of these samples, without their uncertainty, or None.

    Examples:
        >>> import noisedesign as nd
        >>> from noisedesign.privacy import views
        >>> W = nd.mixing_matrix(nd.build_graph("ring", nodes=4))
        >>> algorithm = views.dp_d_sgd(mixing=W, horizon=1)
        >>> scheme = nd.participation.single(1)
        >>> found = nd.account(algorithm, nd.observers.pndp(nodes=[0]), participation=scheme)
        >>> [(e.node, e.distance, round(e.mu, 4)) for e in found]
        [('1', 1, 2.0), ('2', 2, 0.0), ('3', 1, 2.0)]
    """

    node: str
    distance: int | None
    sensitivity_squared: float
    which: str
    mu: float
    adjacency: str
    epsilon: float | None = None
    delta: float | None = None
    responses: str
    theorem: int
    lower_bound: float | None = None
    random: bool = False
    confidence: float | None = None
    epsilon_estimate: float | None = None

    def _title(self) -> str:
        return self.node

    def _facts(self) -> dict[str, object]:
        drawn = {"confidence": self.confidence, "epsilon estimate": self.epsilon_estimate}
        return {
            UNAMPLIFIED_MU if self.random else "mu": self.mu,
            "epsilon": self.epsilon,
            **(drawn if self.random else {}),
            "delta": self.delta,
            "distance": self.distance,
            "sensitivity squared": self.sensitivity_squared,
            "which": self.which,
            "responses": self.responses,
            "rests on": f"theorem {self.theorem}",
            **({} if self.lower_bound is None else {"lower bound": self.lower_bound}),
        }

    @property
    def gap(self) -> float | None:
        """Relative excess over the least that may hold; None where no lower bound was asked for."""
        if self.lower_bound is None:
            return None
        if self.sensitivity_squared == self.lower_bound:
            return 0.0
        return self.sensitivity_squared / self.lower_bound - 1 if self.lower_bound else math.inf

    def renyi(self, alpha: float) -> float:
        """Renyi divergence of order alpha, see :func:`noisedesign.privacy.renyi_of`.

        Args:
            alpha: order, greater than 1.

        Returns:
            alpha mu^2 / 2, in nats; an upper bound where steps are drawn at random.

        Raises:
            InputError: alpha <= 1.
        """
        return accounting.renyi_of(mu=self.mu, alpha=alpha)

    @property
    def loss(self) -> float:
        """The number that ranks victims, epsilon where steps are drawn and mu elsewhere."""
        return self.epsilon if self.random and self.epsilon is not None else self.mu

    @property
    def words(self) -> str:
        """A sentence for a number that needs one, else nothing."""
        if math.isinf(self.mu) and self.which == UNBOUNDED:
            return (
                "mu is infinite: the observer sees gradients of this node without unknown noise, "
                "so no epsilon holds"
            )
        if math.isinf(self.mu):
            return (
                "mu is infinite: gradients that answer to hidden models may carry this record any "
                "distance, so no epsilon holds; declare a class of losses by responses"
            )
        if self.mu == 0:
            return "nothing this node sends reaches the observer"
        if self.responses == "fixed":
            return runs.NOT_COVERED
        if self.random and MIXED_SIGNS in self.which:
            return "at most this: parts of what is seen of this node have opposite signs"
        if OF_ALL_MESSAGES in self.which:
            told = "at most this, which a reader of all messages with the same knowledge learns"
            return told if self.lower_bound != 0 else f"{told}; {NO_SMALLER}"
        return ""


def account(
    algorithm: threats.Algorithm,
    observer: threats.Observer,
    *,
    participation: Participation,
    noise_multiplier: Any = 1.0,
    adjacency: str = DEFAULT_ADJACENCY,
    delta: float | None = DEFAULT_DELTA,
    victims: Sequence[Node] | None = None,
    responses: str | Responses = "any",
    progress: Callable[[int, int], None] | None = None,
    worst: bool = False,
) -> Listing[Exposure]:
    """State what ``observer`` learns about every victim: :func:`noisedesign.account`."""
    threats.check_kinds(algorithm, observer)
    observer = observer.among(algorithm.nodes)
    schemes = "FixedEpoch(...), BallsInBins(...), MinSeparation(...) or Patterns(...)"
    _checks.instance(participation, Participation, field="participation", expected=schemes)
    _checks.one_of(adjacency, field="adjacency", allowed=ADJACENCIES)
    if delta is not None:
        _checks.real(delta, field="delta", low=0, high=1)
    if participation.horizon != algorithm.horizon:
        expected = f"the horizon of the algorithm, {algorithm.horizon} steps"
        raise InputError("participation", expected=expected, got=f"{participation.horizon}")
    if participation.random:
        drawn.require_nonnegative(algorithm)
    algorithm, factor = with_multiplier(algorithm, noise_multiplier)
    require_room(algorithm.noise, observer, participation)
    asked, worst = runs.responses_of(responses), _checks.flag(worst, field="worst")
    mechanism = threats.view(algorithm, observer)
    chosen = _victims(algorithm, observer, victims)
    hops = distances(algorithm.mixing, observer)
    numbers = _numbers(algorithm, observer, mechanism, participation, chosen, asked)
    amplifies = participation.random and delta is not None
    found: Listing[Exposure] = Listing()
    for done, (victim, number) in enumerate(zip(chosen, numbers, strict=True)):
        mu = math.sqrt(number.squared) * CHANGE_OVER_CLIP[adjacency] / factor
        found.append(
            Exposure(
                node=algorithm.nodes[victim],
                distance=hops[victim],
                sensitivity_squared=number.squared,
                which=number.which,
                mu=mu,
                adjacency=adjacency,
                delta=delta,
                epsilon=None if delta is None else epsilon_at(mu, delta),
                responses=number.responses,
                theorem=number.theorem.number,
                lower_bound=number.lower_bound,
                random=participation.random,
            )
        )
        if progress is not None and not amplifies:
            progress(done + 1, len(chosen))
    if delta is None or not amplifies:
        return found
    if found and found[0].theorem == runs.ALL_MESSAGES.number:
        algorithm = replace(algorithm, drawn=True)  # before a reader of all messages
    question = drawn.Asked(
        participation=participation, delta=delta, noise_multiplier=factor, adjacency=adjacency
    )
    known = {
        victim: exposure.epsilon
        for victim, exposure in zip(chosen, found, strict=True)
        if exposure.epsilon is not None and 0 < exposure.mu < math.inf
    }

    def report(done: int) -> None:
        if progress is not None:
            progress(len(found) - len(known) + done, len(found))

    accounts = drawn.amplified_victims(algorithm, observer, question, known, report, worst=worst)
    for place, (victim, exposure) in enumerate(zip(chosen, found, strict=True)):
        if told := accounts.get(victim):
            by_drawing = exposure.theorem == runs.SEEN.number
            found[place] = replace(
                exposure,
                epsilon=told.epsilon,
                which=told.which,
                confidence=told.confidence,
                epsilon_estimate=told.epsilon_estimate,
                theorem=runs.DRAWN.number if by_drawing else exposure.theorem,
            )
        elif victim in known:
            found[place] = replace(exposure, which=drawn.UNAMPLIFIED)
    return found


def with_multiplier(
    algorithm: threats.Algorithm, noise_multiplier: Any
) -> tuple[threats.Algorithm, float]:
    """The algorithm with the noise that every node adds, and what is left of the multiplier."""
    field = "noise_multiplier"
    if isinstance(noise_multiplier, Mapping):
        names = algorithm.nodes
        for name in noise_multiplier:
            if name not in names:
                expected = f"nodes out of {', '.join(names)}"
                raise InputError(field, expected=expected, got=_checks.describe(name))
        for name in names:
            if name not in noise_multiplier:
                raise InputError(field, expected="one for every node", got=f"none for {name}")
        noise_multiplier = [noise_multiplier[name] for name in names]
    if _checks.as_array(noise_multiplier, field=field, ndim=1).ndim == 0:
        return algorithm, _checks.scale(noise_multiplier, field=field)
    factors = _checks.vector(noise_multiplier, field=field, length=len(algorithm.mixing))
    for factor in factors.tolist():
        _checks.scale(factor, field=field)
    return algorithm.scaled(factors), 1.0


def require_room(noise: Noise, observer: threats.Observer, participation: Participation) -> None:
    """Refuse an account over more steps than this machine has memory for."""
    dense = not (isinstance(noise, NodeNoise | ServerNoise) and noise.strategy is None)
    # Least memory of independent noise over T: Grams are diagonal for a reader of all messages, and
    # banded for others.
    step = 300 if observer.sees == "all" else 6000
    participation_room(participation, bytes_of=lambda steps: steps * (8 * steps if dense else step))


def epsilon_at(mu: float, delta: float) -> float:
    """Epsilon of a mu-GDP mechanism at delta; mu may be 0 or infinite, and epsilon is then too."""
    if mu == 0 or math.isinf(mu):
        return mu
    if mu > accounting.LARGEST_MU:
        return math.inf
    return accounting.epsilon_of(mu=max(mu, _checks.SMALLEST), delta=delta)


def _victims(
    algorithm: threats.Algorithm, observer: threats.Observer, victims: Sequence[Node] | None
) -> list[int]:
    n = len(algorithm.mixing)
    if victims is None:
        return [node for node in range(n) if node not in observer.coalition]
    listed = _checks.listed(victims, field="victims", expected="a list of nodes")
    rows = [as_row(victim, algorithm.nodes, field="victims") for victim in listed]
    for victim in rows:
        if victim >= n:
            raise InputError("victims", expected=f"nodes 0 to {n - 1}", got=str(victim))
        if victim in observer.coalition:
            expected = "nodes other than the observer"
            got = f"{algorithm.nodes[victim]}, who looks"
            remedy = "A node that looks knows its own gradients."
            raise InputError("victims", expected=expected, got=got, remedy=remedy)
    return rows


class _Number(NamedTuple):
    """The squared sensitivity of one victim, its name, theorem, responses, and what some reach."""

    squared: float
    which: str
    theorem: Theorem
    responses: str
    lower_bound: float | None = None


def _numbers(
    algorithm: threats.Algorithm,
    observer: threats.Observer,
    mechanism: LinearMechanism,
    participation: Participation,
    victims: Sequence[int],
    asked: Responses,
) -> Iterator[_Number]:
    """The numbers of every victim, by the theorem that covers the observer."""
    seen = _models_are_seen(algorithm, mechanism, observer)
    if seen or asked.kind == "fixed":
        bounded = seen and mechanism.complete and observer.sees != "all"
        for squared, which in _sensitivities(mechanism, participation, victims):
            if bounded and which != UNBOUNDED:
                yield _Number(squared, OF_ALL_MESSAGES, runs.ALL_MESSAGES, "any")
            else:
                theorem = runs.SEEN if seen else runs.FIXED
                yield _Number(squared, which, theorem, "any" if seen else "fixed")
        return
    bounds = _bounds_of_all_messages(algorithm, observer, mechanism, participation, victims)
    if not asked.declared or participation.random:
        yield from bounds
        return
    found = responsive(mechanism, observer.coalition, victims, participation, asked)
    for bound, (squared, lower) in zip(bounds, found, strict=True):
        if squared < bound.squared:
            yield _Number(squared, OF_RESPONSES, runs.SHIFTS, str(asked), lower)
        else:
            yield bound._replace(lower_bound=min(lower, bound.squared))


def _models_are_seen(
    algorithm: threats.Algorithm, mechanism: LinearMechanism, observer: threats.Observer
) -> bool:
    """Whether every model that a gradient is taken at follows from what was seen before."""
    if algorithm.horizon == 1:
        return True
    if isinstance(algorithm.noise, ServerNoise):
        return observer.sees != "sent"
    return mechanism.complete and not isinstance(algorithm.noise, MessageNoise)


def _bounds_of_all_messages(
    algorithm: threats.Algorithm,
    observer: threats.Observer,
    mechanism: LinearMechanism,
    participation: Participation,
    victims: Sequence[int],
) -> Iterator[_Number]:
    """Bounds by a reader of all messages, of the steps from which something can have arrived."""
    arrives = arrivals(algorithm, observer)
    if isinstance(algorithm.noise, MessageNoise):
        told = _told_last(mechanism)
    if isinstance(algorithm.noise, ServerNoise):
        # Whose messages are not read is known by the averages alone, which all go on from.
        average = threats.view(algorithm, threats.central())
        told_by_average = dict(
            zip(victims, _sensitivities(average, participation, victims), strict=True)
        )
    full = mechanism.full_view
    for victim in victims:
        steps = arrives[:, victim] & participation.taking_part
        squared, which, theorem = 0.0, OF_ALL_MESSAGES, runs.ALL_MESSAGES
        if not steps.any():
            pass
        elif isinstance(algorithm.noise, ServerNoise):
            (squared, which), theorem = told_by_average[victim], runs.SEEN
            if victim in observer.listened:
                squared, which = math.inf, UNBOUNDED
        elif isinstance(algorithm.noise, MessageNoise):
            # The message that a node keeps is hidden, and no noise hides what it carries on.
            squared = math.inf if steps[:-1].any() else float(told[victim])
        elif (full.unprotected[victim] & steps).any():
            squared = math.inf
        else:
            gram = full.grams[full.which[victim]]
            if not (kept := arrives[:, victim]).all():
                mask = diags_array(kept.astype(np.float64)).tocsr()
                gram = mask @ gram @ mask  # type: ignore[assignment]
            unit = squared_sensitivity(gram, participation)
            squared = float((unit.per_pattern * float(full.scale[victim])).max())
        yield _Number(squared, which, theorem, "any")


def _told_last(mechanism: LinearMechanism) -> NDArray[np.float64]:
    """Information that messages of the last step carry on its gradients, shape (n,)."""
    steps = mechanism.steps
    last = steps[(mechanism.horizon - 1) % len(steps)]
    split = whitening(last.output_noise, noise_scale=mechanism.noise_scale)
    told = np.square(split.scaled @ last.output).sum(axis=0)
    leaks = split.leaks(last.output) if last.output.size else np.zeros(len(told), dtype=bool)
    return np.where(leaks, math.inf, told)


def _sensitivities(
    mechanism: threats.LinearMechanism, participation: Participation, victims: Sequence[int]
) -> Iterator[tuple[float, str]]:
    """Squared sensitivity of every victim and which number it is."""
    full = mechanism.full_view

    @cache
    def unit_ceiling(which: int) -> Sensitivity:
        """The number of a reader of all messages, once for all nodes that share a Gram."""
        return squared_sensitivity(full.grams[which], participation)

    taking_part = participation.taking_part
    for victim, (gram, unprotected) in threats.grams(mechanism, victims):
        if (unprotected & taking_part).any():
            yield math.inf, UNBOUNDED
            continue
        ceiling = None
        if not full.unprotected[victim].any():
            unit = unit_ceiling(full.which[victim])
            ceiling = float((unit.per_pattern * float(full.scale[victim])).max())
            if mechanism.complete:
                yield ceiling, unit.kind
                continue
        found = squared_sensitivity(gram, participation, ceiling=ceiling)
        yield found.squared, found.kind
