"""The problems that users pose: a noise design in space, in time or in both, and its target.

All are the one convex program of :mod:`noisedesign.certify.program`,

    minimise  tr(H X^-1)  over positive definite X in a sensitivity set,

read in two ways. In space X = R^-1 is the precision of the noise of the nodes (Whisper D-SGD,
problem (10) with its inequality the right way round); in time X = C^T C is the Gram matrix of the
strategy every node uses for itself (Mafalda-SGD, Lemma 10)."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from types import NoneType
from typing import Any, Literal, Self, TypeVar, cast

import networkx as nx
import numpy as np
from scipy.sparse import csr_array, issparse

from noisedesign.base import checks as _checks, memory, settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.shown import Shown
from noisedesign.forms.structure import SpaceStructure, TimeStructure
from noisedesign.privacy import runs
from noisedesign.privacy.runs import LEMMA, Theorem
from noisedesign.privacy.target import PrivacyTarget
from noisedesign.privacy.views import Coalitions, Observer
from noisedesign.problem.pair_budgets import checked_factors, told_pairs
from noisedesign.problem.unbounded import UnboundedProblem
from noisedesign.system.directed import DIRECTED_WEIGHTS, check_directed, directed_mixing
from noisedesign.system.gossip import check_schedule, checked_rounds, of_every_step, repeated
from noisedesign.system.graph import (
    LEAST_NOISE,
    check_mixing,
    check_sparse_mixing,
    mixing_matrix,
    node_names,
)
from noisedesign.system.least_noise_bound import MixingProof
from noisedesign.system.participation import (
    FixedEpoch,
    Participation,
    every_step,
    require_fixed_epoch,
    require_room,
    single,
)
from noisedesign.system.random_mixing import RandomMixing
from noisedesign.system.rules import UNSAID, sparse_mixing_matrix
from noisedesign.system.workloads import WORKLOADS, WORST, ErrorMeasure, ErrorMixture, Workload

JOINTS = ("kronecker", "modal", "full")

ANY_SPACE = SpaceStructure()
ANY_TIME = TimeStructure()  # noise without a structure


def check_steps(privacy: PrivacyTarget | None, horizon: int) -> None:
    if privacy is not None and privacy.steps not in (None, horizon):
        expected = f"{horizon}, the horizon of the design, or nothing"
        raise InputError("privacy.steps", expected=expected, got=str(privacy.steps))


def _check_use_in_space(problem: SpaceProblem, horizon: int) -> None:
    """Check that it is said how long noise in space is used, where its privacy depends on that."""
    participation, privacy = problem.participation, problem.privacy
    used, key = None if privacy is None else privacy.steps, "privacy.steps"
    if participation is not None:
        check_steps(privacy, participation.horizon)
        used, key = participation.horizon, "participation"
    if used is None and privacy is not None and horizon == 1:
        raise InputError(
            key,
            expected="how many steps the noise is used for",
            got="neither that nor a participation",
            remedy="Give steps, of which a record takes part in every one, or a participation "
            "(epochs and separation).",
        )
    if used is not None and used < horizon:
        expected = f"at least the {horizon} steps whose error counts"
        raise InputError(key, expected=expected, got=f"{used} steps")


def models_are_seen(observers: Sequence[Observer] | Coalitions, horizon: int) -> bool:
    """Whether every gradient is taken at a model that all observers know."""
    pooled = isinstance(observers, Coalitions)
    return horizon == 1 or (not pooled and all(one.sees == "all" for one in observers))


def theorem_of(problem: Problem) -> Theorem:
    """The theorem of docs/runs.md on which the privacy of a design rests."""
    if problem.use is not None and problem.use.random:
        return runs.DRAWN
    if problem.axes != "space" or not problem.observers:
        return runs.SEEN
    return runs.SEEN if models_are_seen(problem.observers, problem.horizon) else runs.FIXED


def _check_against_observers(problem: SpaceProblem) -> Array:
    """Check a problem against observers; return its caps, which may be below 1 / budget, (n,)."""
    horizon, participation = problem.horizon, problem.participation
    _checks.one_of(problem.responses, field="responses", allowed=("any", "fixed"))
    if problem.responses == "any" and not models_are_seen(problem.observers, horizon):
        raise InputError(
            "responses",
            expected=f'"fixed" for observers of a part of {horizon} steps',
            got="nothing",
            remedy="Gradients that answer to models, as in training, carry a record further than "
            "such a design counts. Design for one step (horizon = 1), or for all messages.",
        )
    _exclude(problem, _OBSERVERS)
    key, length = "limits.max_variance", len(problem.mixing)
    if problem.max_variance is None:
        raise InputError(
            key,
            expected="a cap on the variance of noise against observers",
            got="nothing",
            remedy="Noise that none of them sees through, and that mixing cancels, "
            "would grow without bound.",
        )
    caps = _checks.positive_vector(problem.max_variance, field=key, length=length)
    check_steps(problem.privacy, horizon)
    once = f"single participation in {horizon} steps (epochs = 1, separation = {horizon})"
    if participation is None and problem.privacy is not None:
        expected = f"{once}, which is what budgets before observers are for"
        raise InputError("participation", expected=expected, got="nothing")
    if participation not in (None, single(horizon)):
        raise InputError("participation", expected=once, got=str(participation))
    return caps


def _in_time(structure: TimeStructure, participation: Participation) -> TimeStructure:
    """The structure of C under a participation: without negative entries where that is random."""
    if not participation.random:
        return structure
    if structure.nonnegative is False:
        expected = "true under random participation"
        remedy = f"Designs under random participation rest on {LEMMA}. Leave the key out."
        raise InputError("structure.nonnegative", expected=expected, got="false", remedy=remedy)
    return replace(structure, nonnegative=True)


def _check_against_budget(limit: Array, budget: Array, *, field: str, names: Sequence[str]) -> None:
    """Limits in units of 1 / tau can be computed with."""
    worst, most = int((limit * budget).argmax()), _checks.MOST_OF_MANY
    if limit[worst] * budget[worst] > most:
        expected = f"at most {most:g} / tau = {most / budget[worst]:.6g} (node {names[worst]})"
        raise InputError(field, expected=expected, got=f"{limit[worst]:.6g}")


def _checked_cap(max_variance: Any, budget: Array, *, names: Sequence[str]) -> Array | None:
    """Caps on the variance of every node, shape (n,), that some noise within the budgets keeps."""
    if max_variance is None:
        return None
    field = "limits.max_variance"
    cap = _checks.positive_vector(max_variance, field=field, length=len(budget))
    _check_against_budget(cap, budget, field=field, names=names)
    worst = int((cap * budget).argmin())
    if cap[worst] * budget[worst] <= 1:
        least = f"more than 1 / tau = {1 / budget[worst]:.6g} (node {names[worst]})"
        expected = f"{least}, since [R^-1]_ii R_ii >= 1 for every covariance"
        raise InputError(field, expected=expected, got=f"{cap[worst]:.6g}")
    return cap


def _checked_default(max_variance: Any, default: Any) -> dict[str, Any]:
    """The two fields that say a cap, of which "none" says that there is none by default."""
    default = _checks.flag(default, field="default_cap")
    if isinstance(max_variance, str):
        _checks.one_of(max_variance, field="limits.max_variance", allowed=("none",))
        return {"max_variance": None, "default_cap": False}
    return {"max_variance": max_variance, "default_cap": default}


def check_cap_over_time(cap: Array, independent: Array) -> None:
    """Check that caps (m,) exceed the variances of independent noise of k participations."""
    worst = int((cap / independent).argmin())
    if cap[worst] <= independent[worst]:
        least = f"more than {independent[worst]:.6g}"
        expected = f"{least}, the variance of independent noise of as many participations"
        raise InputError("limits.max_variance", expected=expected, got=f"{cap[worst]:.6g}")


def _checked_floor(
    min_variance: Any,
    cap: Array | None,
    structure: SpaceStructure,
    budget: Array,
    *,
    names: Sequence[str],
) -> Array | None:
    """Floors on the variance of every node, shape (n,), none above its cap."""
    if min_variance is None:
        return None
    field = "limits.min_variance"
    if structure.restricts:
        expected = f'no floor but for noise without a structure in space ("{ANY_SPACE}")'
        raise InputError(field, expected=expected, got=f'one for "{structure}"')
    floor = _checks.positive_vector(min_variance, field=field, length=len(budget))
    _check_against_budget(floor, budget, field=field, names=names)
    if cap is not None and (floor > cap).any():
        worst = int((floor / cap).argmax())
        expected = f"at most limits.max_variance = {cap[worst]:.6g} (node {names[worst]})"
        raise InputError(field, expected=expected, got=f"{floor[worst]:.6g}")
    return floor


_Kind = tuple[tuple[type, ...], str]
_FIXED_EPOCH: _Kind = (FixedEpoch,), "FixedEpoch(epochs=..., separation=...)"
_SCHEME: _Kind = (Participation,), f"{_FIXED_EPOCH[1]} or MinSeparation(...)"
_IN_SPACE: _Kind = (SpaceStructure,), 'SpaceStructure(kind="...")'
_IN_TIME: _Kind = (TimeStructure,), 'TimeStructure(kind="...")'
_MIXING_PROOF: _Kind = (MixingProof, NoneType), "that of least_noise_mixing or None"
_COMMON: dict[str, _Kind] = {  # fields that hold values: of which types, and how one is made
    "error": ((ErrorMeasure, ErrorMixture, NoneType), "ErrorMeasure(horizon=..., of=...) or None"),
    "random": ((RandomMixing, NoneType), "a value of noisedesign.system.random_mixing or None"),
    "privacy": ((PrivacyTarget, NoneType), "PrivacyTarget(epsilon=..., delta=...) or None"),
}


def _check(value: Any, field: str, kind: _Kind) -> None:
    _checks.instance(value, kind[0], field=field, expected=kind[1])
    if isinstance(value, Participation) and not value.for_designs:
        got = _checks.describe(value)
        raise InputError(field, expected=kind[1], got=got, remedy=value.instead)


def _check_types(problem: Problem, **own: _Kind) -> None:
    """Check that the fields of a problem hold values of their types."""
    _checks.text(problem.name, field="name")
    for key, kind in (_COMMON | own).items():
        _check(getattr(problem, key), key, kind)


_OBSERVERS, _SPARSE = "chosen observers", "noise that takes W as a sparse array"


def _check_beside_worst(problem: Problem, *asked: tuple[str, bool, str]) -> None:
    """Check that nothing of what is ``asked`` (key, whether, got) stands beside a worst error."""
    for key, given, got in asked:
        if problem.worst and given:
            assert problem.error is not None
            expected = f'nothing beside the error of = "{problem.error.of}"'
            raise InputError(key, expected=expected, got=got)


def _exclude(problem: SpaceProblem, beside: str, *, remedy: str = "") -> None:
    """Refuse what a problem in space asks for and ``beside`` excludes, by one table."""
    error, structure = problem.error, problem.structure
    capped, floored = problem.max_variance is not None, problem.min_variance is not None
    other_error = error is not None and not error.plain
    drawn, scheduled = problem.random is not None, problem.schedule is not None
    for key, asked, got, by in (
        ("structure.space", structure.restricts, f'"{structure}"', (_OBSERVERS,)),
        ("limits.max_variance", capped, "a cap", (_SPARSE,)),
        ("limits.min_variance", floored, "a floor", (_OBSERVERS, _SPARSE)),
        ("error", other_error, "another than that of all iterates", (_SPARSE,)),
        ("random", drawn, "W that is drawn", (_OBSERVERS, _SPARSE)),
        ("schedule", scheduled, "a schedule", (_OBSERVERS, _SPARSE)),
        ("workload.rounds", problem.rounds != 1, f"{problem.rounds}", (_SPARSE,)),
        ("observers", bool(problem.observers), "some", (_SPARSE,)),
    ):
        if asked and beside in by:
            raise InputError(key, expected=f"nothing beside {beside}", got=got, remedy=remedy)


def _checked_gossip(
    mixing: Any, *, rounds: Any, schedule: Any, error: Any, random: Any
) -> dict[str, Any]:
    """Return the fields of a problem that say how models mix, once they go together."""
    given = _as_array(mixing) if schedule is None else schedule
    pushed = error is not None and error.push_sum_weights is not None
    w, steps = check_schedule(given, stochastic="column" if pushed else "row")
    if steps is None and pushed:
        w = check_directed(w, stochastic="column")
    if schedule is not None:
        said = _checks.square_matrices(mixing, field="mixing").mean(axis=0)
        if said.shape != w.shape or np.abs(said - w).max() > settings.STOCHASTIC_TOLERANCE:
            raise InputError("schedule", expected="matrices whose average is mixing", got="others")
    if steps is not None and (pushed or random is not None):
        key, got = ("error.push_sum_weights", "some") if pushed else ("random", "W that is drawn")
        raise InputError(key, expected="nothing beside a schedule of W", got=got)
    return {"mixing": w, "rounds": checked_rounds(rounds), "schedule": steps}


def _as_array(mixing: Any, *, remedy: str = "") -> Any:
    """Return W as an array; InputError where a sparse one has too many nodes."""
    given: Any = mixing  # what the stubs of issparse make of it has no shape
    if not issparse(mixing):
        return mixing
    if (nodes := max(given.shape)) > settings.DENSE_NODES:
        expected = f"at most {settings.DENSE_NODES} nodes, for n x n arrays"
        remedy = remedy or (
            "On larger graphs there is noise in space for one step, without a structure or of one "
            "that takes W as a sparse array."
        )
        raise InputError("mixing", expected=expected, got=f"{nodes}", remedy=remedy)
    return given.toarray()


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _OnGraph(Shown):
    """A problem whose W may be made of a graph: the fields of all, and what follows from them."""

    mixing: Any
    error: ErrorMeasure | ErrorMixture | None = None
    random: RandomMixing | None = None
    rounds: int = 1
    schedule: Any = None
    nodes: tuple[str, ...] = ()
    privacy: PrivacyTarget | None = None

    @property
    def _gossip(self) -> dict[str, Any]:
        """The fields that say how models mix, as :func:`_checked_gossip` takes them."""
        names = ("mixing", "rounds", "schedule", "error", "random")
        return {name: getattr(self, name) for name in names}

    @property
    def sparse(self) -> bool:
        """Whether W is a sparse array."""
        return issparse(self.mixing)

    def dense(self) -> Self:
        """The same problem with W as an array.

        Returns:
            Itself, where W is one.

        Raises:
            InputError: naming ``mixing``: it has too many nodes for that.
        """
        if not self.sparse:
            return self
        remedy = (
            "Of larger graphs there are solve, verify, report, simulate, and exports to npy, csv, "
            "mat or safetensors; design.noise.stream draws noise by products."
        )
        found = copy.copy(self)
        found._set(mixing=_checks.matrix(_as_array(self.mixing, remedy=remedy), field="mixing"))
        return found

    @property
    def one_step_weights(self) -> Array | None:
        """q, (n,), where H is W^T diag(q) W of one gossip round, and budgets and caps are all."""
        return None

    @property
    def worst(self) -> bool:
        """Whether the error is the largest of some, and no sum."""
        return self.error is not None and self.error.worst

    @property
    def step_mixing(self) -> Array:
        """W^K of K gossip rounds, shape (n, n); of a schedule, shape (P, n, n)."""
        w: Array = self.mixing
        if self.rounds == 1 and self.schedule is None:
            return w
        return of_every_step(w, rounds=self.rounds, schedule=self.schedule)

    @property
    def always_alike(self) -> bool:
        """Whether models mix by the same W, if any, in every round."""
        return self.random is None and self.schedule is None

    @property
    def step_random(self) -> RandomMixing | None:
        """The distribution of all rounds of a step; None where W is what it is."""
        return repeated(self.random, rounds=self.rounds)

    def _workload(self, horizon: int) -> Workload:
        """The workload of its error."""
        mixing, random = self.step_mixing, self.step_random
        return Workload.of(mixing, horizon=horizon, error=self.error, random=random)

    def with_error(self, error: ErrorMeasure | ErrorMixture | None) -> Self:
        """The same problem under another error.

        Args:
            error: of the same horizon.

        Returns:
            The problem, H formed anew.

        Raises:
            InputError: as the problem itself.
        """
        return self._formed_anew(error=error)

    def _formed_anew(self, **changed: Any) -> Self:
        """The problem with other fields, by which its H is formed."""
        return replace(self, **changed)

    @classmethod
    def from_graph(
        cls,
        graph: nx.Graph,
        *,
        weights: str = "metropolis-hastings",
        weight: str | None = UNSAID,
        **kwargs: Any,
    ) -> Self:
        """The problem on a graph, with the names of its nodes.

        Args:
            graph: connected and simple; a digraph for weights of
                :func:`noisedesign.system.directed.directed_mixing`.
            weights: those, or see :func:`noisedesign.mixing_matrix`.
            weight: the attribute of edges that weighs them, as ``"weight"``, or None, as there; not
                given: None, with a UserWarning where weights differ.
            **kwargs: fields of the problem; in time, arguments of
                :meth:`TimeProblem.decentralized`.

        Returns:
            The problem.

        Raises:
            InputError: as the functions named and the problem itself.
        """
        mixing: Any
        least_noise = isinstance(graph, nx.DiGraph) and weights == LEAST_NOISE
        if least_noise or (isinstance(weights, str) and weights in DIRECTED_WEIGHTS):
            mixing = directed_mixing(graph, weights=weights, weight=weight)
        elif isinstance(graph, nx.Graph) and len(graph) > settings.DENSE_NODES:
            mixing = sparse_mixing_matrix(graph, weights=weights, weight=weight)
        else:
            mixing = mixing_matrix(graph, weights=weights, weight=weight)
        made: Any = getattr(cls, "decentralized", cls)
        return cast(Self, made(mixing=mixing, **{"nodes": node_names(graph)} | kwargs))

    def with_mixing(self, mixing: Any) -> Self:
        """The same problem under another W, by which its error is formed anew.

        Args:
            mixing: W, as the class itself takes it.

        Returns:
            The problem.

        Raises:
            InputError: as the class itself.
        """
        return self._formed_anew(mixing=mixing)

    def _set(self, **checked: Any) -> None:
        """Fields as their checks return them."""
        for name, value in checked.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SpaceProblem(_OnGraph):
    """Noise correlated across nodes, independent across steps (Whisper D-SGD, or CorN-DSGD).

    Minimise :math:`tr(H R)` over covariances R subject to :math:`[R^-1]_ii <= tau_i`, the budget of
    every node i, and, optionally, min_variance_i <= R_ii <= max_variance_i. H is W^T W, the error
    after one step, unless an error or a random mixing says otherwise.

    Args:
        mixing: W, shape (n, n), an array or a sparse array of scipy: nonnegative, row stochastic,
            of a graph on which every node reaches every other; column stochastic under an error
            with push-sum weights; or a list of arrays, of which step t, from 0, has number t modulo
            their number. Where columns do not sum to 1, models agree on the mean by the left Perron
            vector of W. A sparse W of more than 8192 nodes stays sparse, as does every W under
            structures for sparse arrays.
        budget: tau, scalar or shape (n,): squared sensitivity allowed to a unit change at each
            node, in inverse squared noise units.
        max_variance: cap on diag(R), squared noise, scalar or shape (n,), or None: where H is
            singular, one that :func:`noisedesign.solve` states; "none": no cap, and a refusal.
        min_variance: floor on diag(R), squared noise, scalar or shape (n,), or None; for noise
            without a structure. One of at most 1 / budget asks for nothing.
        structure: which nodes may share a seed. Where W stays sparse, none becomes "polynomial",
            and other errors, limits, rounds, schedules, random mixing and observers are refused.
        participation: how long noise is used, and in which of these steps one record may take part,
            which decides on the scale of R for a privacy target. None: every step of
            ``privacy.steps``, or of the error where it counts several.
        error: what error of which steps counts; None: all nodes, after one step, or after every
            step of one period of a schedule.
        random: the distribution W is drawn from at every gossip round, with ``mixing`` as its W
            without failures; None: W is what it is.
        rounds: K, gossip rounds after every gradient step: W^K takes the place of W in the error.
        schedule: the list given as ``mixing``, shape (P, n, n), which is then their average.
        observers: against whom: a list, or all coalitions of some nodes by
            :func:`noisedesign.privacy.views.coalitions`; none: a reader of all messages. Budgets
            are for what one of them sees, over the steps of the error, of a unit change at one
            step; a cap is required.
        pair_factors: factors >= 1, shape (observers, n), on squared budgets: [a, u] tau_u is what
            observer a may see of node u; None: 1. A target is kept before every observer.
        mixing_proof: what proves a bound for every W, where W was chosen for least noise
            (:func:`noisedesign.graphs.least_noise_mixing`), or None; no part of what is asked for.
        default_cap: whether None is a cap where H is singular; False of max_variance "none".
        responses: "fixed" says that budgets before observers of a part of several steps are for
            gradients that answer to nothing unseen, which no training keeps to; else "any".
        name: of the problem, in tables and files.
        nodes: names in the order of the rows of W; default "0", "1", ...
        privacy: the target that the noise of a design is scaled to.

    Raises:
        InputError: a value of another type, naming its field; no mixing matrix
            (:func:`noisedesign.system.graph.check_mixing`); budget <= 0; a cap at or below
            1 / budget, which no noise meets; a floor above a cap, or with a structure; observers of
            other nodes, or with what excludes them; a target without the steps noise is used for.

    Examples:
        On a graph whose nodes are all alike the optimum is (sum of abs(lambda_i))^2 / n over the
        eigenvalues of W: 1, 1/3, 1/3 and -1/3 on a ring of four.

        >>> import noisedesign as nd
        >>> problem = nd.SpaceProblem.from_graph(nd.build_graph("ring", nodes=4))
        >>> print(f"{problem.gram.trace():.4f}")  # of independent noise: 1 + 3/9
        1.3333
        >>> print(f"{nd.solve(problem).design.objective:.4f}")  # (1 + 3/3)^2 / 4
        1.0000
    """

    budget: Any = 1.0
    max_variance: Any = None
    min_variance: Any = None
    structure: SpaceStructure = ANY_SPACE
    participation: Participation | None = None
    observers: tuple[Observer, ...] | Coalitions = ()
    pair_factors: Any = None
    responses: str = "any"
    mixing_proof: MixingProof | None = None
    default_cap: bool = True
    name: str = "space"
    axes: Literal["space"] = field(default="space", init=False)

    def __post_init__(self) -> None:
        _check_types(self, structure=_IN_SPACE, mixing_proof=_MIXING_PROOF)
        self._set(**_checked_default(self.max_variance, self.default_cap))
        if self.error is not None:
            memory.require(memory.squares, self.error.horizon, field="error.horizon", of="steps")
        if self.participation is not None:
            _check(self.participation, "participation", _SCHEME)
        too_large = self.sparse and max(np.shape(self.mixing)) > settings.DENSE_NODES
        if self.structure.sparse or too_large:
            self._keep_sparse()
        else:
            self._set(**_checked_gossip(**self._gossip))
        if self.schedule is not None and self.error is None:
            if not self.observers:  # a period is not how long anything is used
                _check_use_in_space(self, 1)
            self._set(error=ErrorMeasure(horizon=len(self.schedule)))
        n = int(self.mixing.shape[-1])
        budget = _checks.positive_vector(self.budget, field="budget.tau", length=n)
        self._set(nodes=_checks.node_names(self.nodes, count=n))
        self._set(budget=budget, observers=_checked_observers(self.observers, names=self.nodes))
        watchers, names = self.observers, self.nodes
        factors = checked_factors(self.pair_factors, observers=watchers, budget=budget, names=names)
        self._set(pair_factors=factors)
        if self.observers:
            self._set(max_variance=_check_against_observers(self))
        else:
            cap = _checked_cap(self.max_variance, budget, names=self.nodes)
            self._set(max_variance=cap)
            _check_use_in_space(self, self.horizon)
        limits = self.min_variance, self.max_variance
        floor = _checked_floor(*limits, self.structure, budget, names=self.nodes)
        self._set(min_variance=floor)
        restricted = self.structure.restricts, f'"{self.structure}"'
        observed = "observers", bool(self.observers), "some"
        _check_beside_worst(self, ("structure.space", *restricted), observed)
        if (clusters := self.structure.clusters) is not None and len(clusters) != n:
            expected = f"the cluster of each of {n} nodes"
            raise InputError("structure.clusters", expected=expected, got=str(len(clusters)))
        if self.random is not None and (drawn := len(self.random.mean)) != n:
            raise InputError("random", expected=f"a mixing of {n} nodes", got=f"one of {drawn}")

    def _keep_sparse(self) -> None:
        """Set W as a sparse array, and a structure that takes it."""
        structure, given = self.structure.for_large(), self.mixing
        if structure is None:
            _as_array(given)  # which says what is left
            raise AssertionError("a structure that takes arrays, of few nodes")
        remedy = f"Ask for at most {settings.DENSE_NODES} nodes, and another structure."
        _exclude(self, _SPARSE, remedy=remedy)
        if not issparse(given):
            given = csr_array(check_mixing(given, stochastic="row"))
        self._set(mixing=check_sparse_mixing(given), structure=structure)

    @property
    def horizon(self) -> int:
        """T, the steps the error counts; 1 where there is none."""
        return 1 if self.error is None else self.error.horizon

    @property
    def use(self) -> Participation | None:
        """The steps noise is used for and those of one record; None where nobody said."""
        if self.participation is not None:
            return self.participation
        if self.observers:
            return single(self.horizon)
        if self.privacy is not None and self.privacy.steps is not None:
            return every_step(self.privacy.steps)
        return every_step(self.horizon) if self.horizon > 1 else None

    @property
    def sensitivity(self) -> float:
        """Sensitivity to unit changes of a record in all its steps, at the budgets, which before
        observers are for all these steps, else for one; not squared. It is that of the pair of an
        observer and a node that is told most."""
        steps = 1 if self.observers or self.use is None else self.use.largest_size
        return float(np.sqrt(steps) * np.sqrt(self.budget_range[1].max()))

    @property
    def budget_range(self) -> tuple[Array, Array]:
        """Least and largest squared sensitivity to every node that an observer who is told anything
        of it may have, each of shape (n,); both are ``budget`` without ``pair_factors``."""
        if self.pair_factors is None:
            return self.budget, self.budget
        told = told_pairs(self.mixing, self.observers, hops=self.horizon * self.rounds)
        least = np.where(told, self.pair_factors, np.inf).min(axis=0)
        largest = np.where(told, self.pair_factors, 1.0).max(axis=0)
        return self.budget * np.where(np.isfinite(least), least, 1.0), self.budget * largest

    @property
    def feasible_set(self) -> tuple[str, str]:
        """Axes and kind of the noise, which its family is found by."""
        if self.worst:
            return "space", "worst"
        return "space", "observers" if self.observers else self.structure.kind

    @property
    def plain(self) -> bool:
        """Whether H is W^T W, the published error, W that of all rounds."""
        return self.error is None and self.always_alike

    @property
    def one_step_weights(self) -> Array | None:
        """q, (n,), where H is W^T diag(q) W of one gossip round, and budgets and caps are all."""
        n, error = len(self.nodes), self.error
        limited = self.structure.restricts or self.min_variance is not None or self.observers
        if limited or not self.always_alike or self.rounds * self.horizon != 1:
            return None
        if error is None or error.plain:
            return np.ones(n)
        readout = np.zeros((n, n))
        for weight, _, one in error.terms:
            readout += weight * one.steps[0] * one.rates[0] ** 2 * one.readout(nodes=n)
        weights = np.diagonal(readout)
        if error.push_sum_weights is not None or (readout != np.diag(weights)).any():
            return None
        return np.array(weights)

    @cached_property
    def gram(self) -> Array:
        """H, shape (n, n)."""
        if self.sparse:
            return self.dense().gram
        if self.plain:
            return np.asarray(self.step_mixing.T @ self.step_mixing)
        workload = self.error_workload
        workload.require_noise_to_count()
        return workload.space_gram()

    @property
    def error_workload(self) -> Workload:
        """The workload that H belongs to."""
        return self._workload(1)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TimeProblem(_OnGraph):
    """Noise correlated across steps, each node using the same strategy for itself (Mafalda-SGD).

    Minimise :math:`tr(H (C^T C)^-1)` over lower triangular strategies C of unit (squared)
    sensitivity under ``participation``, of a structure the user may restrict.

    Use :meth:`from_graph`, :meth:`decentralized`, :meth:`prefix` or :meth:`from_gram`; they form H.

    Args:
        gram: H = A^T A, (T, T), symmetric positive semidefinite: squared error per squared noise.
        participation: at which steps one record takes part; its horizon is T.
        workload: what H is of: one of :data:`noisedesign.system.workloads.WORKLOADS`.
        mixing: W, shape (n, n), row stochastic; column stochastic under an error with push-sum
            weights. Of a decentralized workload, and of no other.
        max_variance: cap on diag((C^T C)^-1), the variance of the noise of every step at unit
            sensitivity, scalar or shape (T,), or None; of noise without a structure under (k, b)
            participation, whose independent noise has variance k.
        structure: of C.
        budget: tau, scalar or shape (b,), or None for 1: squared sensitivity allowed to a record
            that takes part at steps j, j + b, ... for every j; of noise without a structure under
            (k, b) participation. C is then at these budgets, and a target is kept by the records of
            the largest one.
        error: what error of which steps counts; None: all nodes, every step. Of prefix sums without
            a graph there is that of the worst step, ``ErrorMeasure(horizon=T, of="worst")``; H is
            that of the sum over steps all the same.
        random: the distribution W is drawn from at every step; None: W is what it is.
        rounds, schedule, nodes: as for :class:`SpaceProblem`.
        name: of the problem, in tables and files.
        privacy: the target that the noise of a design is scaled to.

    Raises:
        InputError: gram not such a matrix, or of another size than the horizon; a cap that
            independent noise does not keep, or one of noise that can have none; a value of another
            type, naming its field.

    Examples:
        Prefix sums of two steps, each record in one of them: the optimum is the golden ratio
        squared, (3 + sqrt 5) / 2, where independent noise has 1 + 2.

        >>> import noisedesign as nd
        >>> problem = nd.TimeProblem.prefix(participation=nd.participation.single(2))
        >>> problem.gram.tolist()
        [[2.0, 1.0], [1.0, 1.0]]
        >>> design = nd.solve(problem).design
        >>> print(f"{design.objective:.4f} {design.ldp_objective:.4f}")
        2.6180 3.0000
    """

    gram: Array
    participation: Participation
    workload: str = "gram"
    mixing: Array | None = None
    max_variance: Any = None
    structure: TimeStructure = ANY_TIME
    budget: Any = None
    name: str = "time"
    axes: Literal["time"] = field(default="time", init=False)

    def __post_init__(self) -> None:
        _check_types(self, participation=_SCHEME, structure=_IN_TIME)
        _checks.one_of(self.workload, field="workload", allowed=tuple(WORKLOADS))
        gram = _checks.symmetric_matrix(
            self.gram, field="workload.gram", tolerance=settings.SYMMETRY_TOLERANCE
        )
        horizon = self.participation.horizon
        if len(gram) != horizon:
            keys, got = self.participation.told_horizon
            expected = f"{keys} = {len(gram)}, the size of the workload"
            raise InputError("participation", expected=expected, got=got)
        self._set(gram=gram, structure=_in_time(self.structure, self.participation))
        self._set(budget=self._checked_budget())
        self._set(max_variance=self._checked_cap())
        if (buffers := self.structure.buffers) is not None and buffers > horizon:
            expected = f"at most {horizon}, the number of steps"
            raise InputError("structure.buffers", expected=expected, got=str(buffers))
        check_steps(self.privacy, horizon)
        self._check_worst()
        if (self.mixing is None) == WORKLOADS[self.workload].of_graph:
            expected = "W for a decentralized workload, and for no other"
            got = "nothing" if self.mixing is None else f'one for workload = "{self.workload}"'
            remedy = "TimeProblem.decentralized makes H from W; from_gram and prefix take no W."
            raise InputError("mixing", expected=expected, got=got, remedy=remedy)
        if self.mixing is not None:
            self._set(**_checked_gossip(**self._gossip))
            self._set(nodes=_checks.node_names(self.nodes, count=len(self.mixing)))
        elif self.rounds != 1 or self.schedule is not None:
            key = "workload.rounds" if self.rounds != 1 else "schedule"
            raise InputError(key, expected="none but for a decentralized workload", got="some")

    def _check_worst(self) -> None:
        """Check what may be said of an error without W, and what beside that of the worst step."""
        error = self.error
        if error is not None and self.mixing is None:
            if error.of != WORST[0] or self.workload != "prefix":
                got = f'of = "{error.of}" for workload = "{self.workload}"'
                expected = f'none but of = "{WORST[0]}" of prefix sums, without a graph'
                raise InputError("error", expected=expected, got=got)
            if not replace(cast(ErrorMeasure, error).summed, step_weights=None).plain:
                expected = "step_weights alone, without a graph"
                raise InputError("error", expected=expected, got="other keys")
            if error.horizon != self.participation.horizon:
                expected = f"{self.participation.horizon}, the participation's horizon"
                raise InputError("error.horizon", expected=expected, got=f"{error.horizon}")
        alone = self.mixing is None and self.participation.largest_size == 1
        if error is not None and getattr(error, "unknown_horizon", False) and not alone:
            expected = "numbers: least errors are known of prefix sums at one participation"
            raise InputError("error.step_weights", expected=expected, got='"unknown-horizon"')
        restricted = self.structure.restricts, f'"{self.structure}"'
        capped = "limits.max_variance", self.max_variance is not None, "a cap"
        _check_beside_worst(self, ("structure", *restricted), capped)

    def _checked_budget(self) -> Array | None:
        """The budgets of all patterns, shape (b,); None where all are 1."""
        if self.budget is None:
            return None
        if self.structure.restricts or self.worst or not self.participation.disjoint:
            kind = self.error.of if self.error is not None and self.worst else self.structure
            raise InputError(
                "budget.tau",
                expected="none but for noise without a structure under (k, b) participation",
                got=f'some for "{kind}", {self.participation}',
                remedy="Other noise has one budget for all records, to which a target scales it.",
            )
        length = self.fixed_epoch.separation
        field, each = "budget.tau", "pattern of steps (separation)"
        budget = _checks.positive_vector(self.budget, field=field, length=length, each=each)
        return None if (budget == 1).all() else budget

    @property
    def pattern_budget(self) -> Array | None:
        """The budgets as files keep them, shape (b,); None where all are 1."""
        return None if self.budget is None else np.asarray(self.budget)

    @property
    def budgets(self) -> Array:
        """The budget tau of every pattern, shape (b,).

        Raises:
            InputError: another participation than (k, b)."""
        return np.ones(self.fixed_epoch.separation) if self.budget is None else self.budget

    def _checked_cap(self) -> Array | None:
        """Caps on the variance of every step, shape (T,)."""
        if self.max_variance is None:
            return None
        if self.structure.restricts or not self.participation.disjoint:
            expected = "no cap but for noise without a structure under (k, b) participation"
            got = f'one for "{self.structure}", {self.participation}'
            raise InputError("limits.max_variance", expected=expected, got=got)
        scheme, field = self.fixed_epoch, "limits.max_variance"
        horizon = scheme.horizon
        cap = _checks.positive_vector(self.max_variance, field=field, length=horizon, each="step")
        check_cap_over_time(cap, np.tile(scheme.epochs / self.budgets, scheme.epochs))
        return cap

    @property
    def use(self) -> Participation:
        """The steps that noise is used for, and in which one record takes part."""
        return self.participation

    @property
    def sensitivity(self) -> float:
        """1, that of every strategy to unit changes of a record in all its steps, or the root of
        the largest budget; under random participation that of the Gaussian mechanism in whose place
        the strategy stands."""
        return 1.0 if self.budget is None else float(np.sqrt(self.budget.max()))

    @property
    def feasible_set(self) -> tuple[str, str]:
        """Axes and kind of the noise, as of :attr:`SpaceProblem.feasible_set`."""
        if self.worst:
            return "time", "worst"
        if self.structure.restricts or self.participation.disjoint:
            return "time", self.structure.family_kind
        return "time", "overlapping"

    @property
    def error_workload(self) -> Workload | None:
        """The workload that H belongs to; None where no W is given."""
        return None if self.mixing is None else self._workload(self.participation.horizon)

    def _formed_anew(self, **changed: Any) -> Self:
        if "error" in changed and self.mixing is None:
            expected = "none but for a decentralized workload"
            raise InputError("error", expected=expected, got="one")
        horizon = self.participation.horizon
        gram = _formed(self.workload, horizon=horizon, **self._gossip | changed)
        return replace(self, gram=gram, **changed)

    @property
    def fixed_epoch(self) -> FixedEpoch:
        """The participation, for what takes (k, b) participation only.

        Raises:
            InputError: it is another.
        """
        return require_fixed_epoch(self.participation)

    @classmethod
    def decentralized(cls, *, mixing: Any, participation: Participation, **kwargs: Any) -> Self:
        """Models of all nodes under a mixing W.

        Args:
            mixing: W, shape (n, n), row stochastic; column stochastic under an ``error`` with
                push-sum weights. A list of such matrices is a schedule: step t, from 0, has
                number t modulo their number.
            participation: at which steps one record takes part.
            **kwargs: ``error``, which of their errors counts, by default that of all iterates;
                ``random``, from which distribution W is drawn at every gossip round; ``rounds``,
                how many of those follow a gradient step, 1 if not given; further fields.

        Returns:
            The problem.

        Raises:
            InputError: as the class itself; see :func:`noisedesign.system.graph.check_mixing`.
        """
        fields: dict[str, Any] = {"mixing": mixing, "participation": participation}
        return cls.of_workload("decentralized", **fields, **kwargs)

    @classmethod
    def of_workload(cls, kind: str, *, participation: Participation, **kwargs: Any) -> Self:
        """A kind of workload that forms H.

        Args:
            kind: one of :data:`noisedesign.system.workloads.WORKLOADS`.
            participation: at which steps one record takes part.
            **kwargs: further fields of the problem; of a graph ``mixing``, ``error``, ``random``,
                ``rounds`` and ``schedule`` as of :meth:`decentralized`.

        Returns:
            The problem.

        Raises:
            InputError: another kind; as the class itself.
        """
        _checks.one_of(kind, field="workload", allowed=tuple(WORKLOADS))
        _check(participation, "participation", _SCHEME)
        require_room(participation)
        unsaid = {"mixing": None, "error": None, "random": None, "rounds": 1, "schedule": None}
        fields = {name: kwargs.pop(name, default) for name, default in unsaid.items()}
        if WORKLOADS[kind].of_graph:
            for name in ("error", "random"):
                _check(fields[name], name, _COMMON[name])
            fields |= _checked_gossip(**fields)
        gram = _formed(kind, horizon=participation.horizon, **fields)
        return cls(gram=gram, participation=participation, workload=kind, **fields, **kwargs)

    @property
    def defined_gram(self) -> Array:
        """H as its kind defines it; the stored one where it is given."""
        if WORKLOADS[self.workload].form is None:
            return self.gram
        return _formed(self.workload, horizon=self.participation.horizon, **self._gossip)

    @classmethod
    def prefix(cls, *, participation: Participation, **kwargs: Any) -> Self:
        """Prefix sums: one model, every iterate, no graph.

        Args:
            participation: at which steps one record takes part.
            **kwargs: further fields of the problem.

        Returns:
            The problem.

        Raises:
            InputError: as the class itself.
        """
        return cls.of_workload("prefix", participation=participation, **kwargs)

    @classmethod
    def from_gram(cls, *, gram: Any, participation: Participation, **kwargs: Any) -> Self:
        """Any error workload A, through H = A^T A.

        Args:
            gram: H, shape (T, T), symmetric positive semidefinite.
            participation: at which steps one record takes part; its horizon is T.
            **kwargs: further fields of the problem.

        Returns:
            The problem.

        Raises:
            InputError: H is not such a matrix, or zero; as the class itself.
        """
        checked = _checks.semidefinite_matrix(gram, field="workload.gram", nonzero=True)
        return cls(gram=checked, participation=participation, **kwargs)


def _formed(
    kind: str, *, horizon: int, mixing: Any, rounds: int, schedule: Any, error: Any, random: Any
) -> Array:
    """H of a kind of workload that forms it, from fields that are checked."""
    if mixing is None:
        return WORKLOADS[kind].gram(horizon=horizon)
    mixing = of_every_step(mixing, rounds=rounds, schedule=schedule)
    random = repeated(random, rounds=rounds)
    return WORKLOADS[kind].gram(horizon=horizon, mixing=mixing, error=error, random=random)


_P = TypeVar("_P", SpaceProblem, TimeProblem)


def unstructured(problem: _P) -> _P:
    """The same problem for noise of every structure: what was checked, and H, are the same."""
    found = copy.copy(problem)
    found._set(structure=type(problem.structure)())
    return found


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SpaceTimeProblem(_OnGraph):
    """Noise correlated across nodes and steps at once.

    Minimise :math:`tr(H cov(z))` over noise z of nT coordinates in which the record of node i, in
    all its participations, has squared sensitivity at most budget_i.

    Args:
        mixing: W, shape (n, n), or a list, as for :class:`SpaceProblem`.
        participation: (k, b), the same for every node.
        budget: tau, scalar or shape (n,), in inverse squared noise units.
        max_variance: cap on the noise variance of every node at every step (for "kronecker": on
            diag(R) at unit sensitivity in time), scalar or shape (n,), or None: of "kronecker",
            one that :func:`noisedesign.solve` states where H is singular; "none": no cap at all.
        time: structure of C, of a Kronecker design.
        space: structure of R, of a Kronecker design.
        joint: "kronecker", noise covariance (C^T C)^-1 x R; "modal", a C for every mode of the
            nodes' noise; or "full", any covariance.
        default_cap: whether None is a cap where H is singular; False of max_variance "none".
        error: what error of which steps counts; None: all nodes, every step.
        random, rounds, schedule, nodes: as for :class:`SpaceProblem`.
        name: of the problem, in tables and files.
        privacy: the target that the noise of a design is scaled to.

    Raises:
        InputError: no mixing matrix; budget <= 0; a cap at or below 1 / budget; another ``joint``;
            a structure of one side of a design that is no product.

    Examples:
        Of a single step it is the problem in space: 1 on a ring of four.

        >>> import noisedesign as nd
        >>> ring = nd.build_graph("ring", nodes=4)
        >>> problem = nd.SpaceTimeProblem.from_graph(ring, participation=nd.participation.single(1))
        >>> print(f"{nd.solve(problem).design.objective:.4f}")
        1.0000
    """

    participation: FixedEpoch
    budget: Any = 1.0
    max_variance: Any = None
    time: TimeStructure = ANY_TIME
    space: SpaceStructure = ANY_SPACE
    joint: str = "kronecker"
    default_cap: bool = True
    name: str = "space-time"
    axes: Literal["space-time"] = field(default="space-time", init=False)

    def __post_init__(self) -> None:
        _check_types(self, participation=_FIXED_EPOCH, time=_IN_TIME, space=_IN_SPACE)
        self._set(**_checked_default(self.max_variance, self.default_cap))
        require_room(self.participation)
        self._set(**_checked_gossip(**self._gossip))
        n = len(self.mixing)
        budget = _checks.positive_vector(self.budget, field="budget.tau", length=n)
        self._set(budget=budget)
        self._set(nodes=_checks.node_names(self.nodes, count=n))
        self._set(max_variance=_checked_cap(self.max_variance, budget, names=self.nodes))
        _checks.one_of(self.joint, field="structure.joint", allowed=JOINTS)
        if self.joint != "kronecker" and (self.time.restricts or self.space.restricts):
            expected = '"kronecker" for a structure in time or space'
            raise InputError("structure.joint", expected=expected, got=f'"{self.joint}"')
        joint = "structure.joint", self.joint != "full", f'"{self.joint}", and not "full"'
        _check_beside_worst(self, joint)
        if self.joint == "kronecker":
            self._set(time=_in_time(self.time, self.participation))
        elif self.participation.random:
            raise InputError(
                "structure.joint",
                expected='"kronecker" under random participation',
                got=f'"{self.joint}"',
                remedy=f"A {self.joint} design is made for fixed participation; `noisedesign "
                "account` says what its noise is worth under a random one.",
            )
        check_steps(self.privacy, self.participation.horizon)

    @property
    def use(self) -> FixedEpoch:
        """The steps that noise is used for, and in which one record takes part."""
        return self.participation

    @property
    def sensitivity(self) -> float:
        """Sensitivity to unit changes of a record in all its steps, at the budgets; not squared."""
        return float(np.sqrt(self.budget.max()))

    @property
    def feasible_set(self) -> tuple[str, str]:
        """Axes and kind of the noise, as of :attr:`SpaceProblem.feasible_set`."""
        return "space-time", "worst" if self.worst else self.joint

    @property
    def error_workload(self) -> Workload:
        """The workload that the error is of."""
        return self._workload(self.participation.horizon)


Problem = SpaceProblem | TimeProblem | SpaceTimeProblem


def endless_of(value: Any) -> UnboundedProblem | None:
    """The problem of a run without an end that a value is or has; None of all others."""
    found = (value, getattr(value, "problem", None))
    return next((one for one in found if isinstance(one, UnboundedProblem)), None)


def problem_of(value: Any, *, sparse: bool = False) -> Problem:
    """Return a problem itself, or that of a file, design, solution; W dense unless ``sparse``."""
    stored = getattr(value, "design", None)
    for found in (value, getattr(value, "problem", None), getattr(stored, "problem", None)):
        if isinstance(found, Problem):
            return found if sparse else found.dense()
    remedy = ""
    if endless_of(value) is not None:
        remedy = (
            "A run without an end has solve; there are verify, deploy, noise and privacy_after of "
            "its design. Anything else takes a number of steps."
        )
    elif isinstance(value, nx.Graph):
        remedy = "Give SpaceProblem.from_graph(graph), or TimeProblem.from_graph."
    elif isinstance(value, (str, PathLike)):
        remedy = "Give load(path)."
    elif isinstance(value, np.ndarray) or issparse(value):
        remedy = "Give SpaceProblem(mixing=W)."
    expected = "a SpaceProblem, TimeProblem or SpaceTimeProblem"
    raise InputError("problem", expected=expected, got=_checks.describe(value), remedy=remedy)


def _checked_observers(given: Any, *, names: Sequence[str]) -> tuple[Observer, ...] | Coalitions:
    """Check observers of a graph of nodes of these names; coalitions are not written out."""
    expected = "observers, as noisedesign.privacy.views makes them"
    found: tuple[Observer, ...] | Coalitions
    if isinstance(given, Coalitions):
        found = given.among(names)
        named = [found.nodes]
    else:
        listed = _checks.listed(given, field="observers", expected=f"a list of {expected}")
        for one in listed:
            _checks.instance(one, Observer, field="observers", expected=expected)
        found = tuple(one.among(names) for one in listed)
        named = [(*one.coalition, *one.listened, *one.knows.revealed) for one in found]
    for largest in (max(some, default=0) for some in named):
        if largest >= len(names):
            expected = f"nodes 0 to {len(names) - 1}"
            raise InputError("observers.nodes", expected=expected, got=str(largest))
    return found
