"""The best noise for a graph, records and an epsilon, among all kinds of it that fit.

Every candidate is a problem at the same privacy target; it is solved and certified, and its error
is evaluated by one measure over the whole run. Nothing is estimated: what was not solved in the
time allowed is listed as such."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import networkx as nx
import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.base.shown import Listing, Shown
from noisedesign.design.design import Design
from noisedesign.design.least_noise import least_noise_mixing
from noisedesign.design.solve import solve
from noisedesign.forms.structure import SpaceStructure, TimeStructure
from noisedesign.mechanisms.baselines import baseline
from noisedesign.privacy.accounting import epsilon_of
from noisedesign.privacy.target import DEFAULT_ADJACENCY, DEFAULT_DELTA, PrivacyTarget
from noisedesign.problem.problem import Problem, SpaceProblem, SpaceTimeProblem, TimeProblem
from noisedesign.system.graph import LEAST_NOISE, mixing_matrix, node_names
from noisedesign.system.participation import BallsInBins, FixedEpoch
from noisedesign.system.rules import UNSAID
from noisedesign.system.workloads import ErrorMeasure
from noisedesign.system.workloads.error import OF_THE_END
from noisedesign.tasks.evaluate import Evaluation, evaluate

TRUST = ("nobody", "neighbours share keys", "a trusted party deals noise")
SECONDS = 120.0  # of a recommendation; more lets slower candidates end on graphs of hundreds
MOST_PAIRS = 600  # of node and step for noise of any kind: its solver takes minutes beyond
BYTES = 8  # of a coordinate of a vector that is kept
SHARE = 0.6  # of the time for candidates; the rest is for what would change
MOST_CHOSEN = 2  # kinds that are tried under the W of least noise, too
TARGET = ("epsilon", "delta", "clip", "adjacency")  # what is said of a target
KEPT = (1, 2, 4, 8, 16)  # bands and buffers that are tried under a limit of memory
NOTHING_SHARED = "nothing shared"
FROM_SECRETS = "secret batches, drawn at random"


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of noise that may be recommended, by the tables that a problem file says it in."""

    name: str
    trust: int  # index of TRUST that it takes at least
    design: str = "time"
    structure: Mapping[str, Any] = field(default_factory=dict)
    drawn: bool = False  # whether batches are drawn at random
    independent: bool = False  # whether it is what nobody designs
    chosen: bool = False  # whether W is that of least noise
    cap: float | None = None  # on variances of nodes, where W is singular

    @property
    def needs(self) -> str:
        """Who shares what."""
        shared = (NOTHING_SHARED, "a key for every edge", "a party that deals each its own noise")
        own = shared[self.trust]
        return f"{own}; {FROM_SECRETS}" if self.drawn else own

    @property
    def holds_not(self) -> tuple[str, ...]:
        """Before whom its epsilon does not hold."""
        found = []
        if self.trust == 1:
            found.append("a reader of all messages who knows keys of the node's neighbours")
        if self.trust == 2:
            found.append("the party that deals the noise")
            found.append("nodes that hold the seeds of all noise, and not their own values alone")
        if self.drawn:
            found.append("whoever learns which batch a record is in")
        return tuple(found)


def kinds_of(trust: int, *, kept: int | None = None) -> Iterator[Kind]:
    """Kinds that take at most that trust, the quickest to solve first, batches fixed.

    Of noise over time those that keep at most ``kept`` vectors of the model's size."""
    yield Kind(name="independent noise", trust=0, independent=True)
    space = ("edge-local", "between neighbours"), ("dense", "between nodes")
    for level, (between, name) in enumerate(space, start=1):
        if level <= trust:
            yield Kind(name=name, trust=level, design="space", structure={"space": between})
    in_time: list[tuple[str, dict[str, Any]]] = [("over time", {})]
    if kept is not None:
        few = [count for count in KEPT if count <= kept]
        in_time = [(f"over time, {p + 1} bands", {"time": "banded", "bands": p + 1}) for p in few]
        in_time += [(f"over time, {m} buffers", {"time": "blt", "buffers": m}) for m in few]
    for said, structure in in_time:
        yield Kind(name=said, trust=0, structure=structure)
    for level, (between, name) in enumerate(space, start=1):
        for said, times in in_time:
            if level <= trust:
                both = {"joint": "kronecker", "space": between, **times}
                yield Kind(
                    name=f"{name} and {said}", trust=level, design="space-time", structure=both
                )
    if trust == 2 and kept is None:
        for joint, name in (("modal", "modes of the network"), ("full", "any covariance")):
            yield Kind(name=name, trust=2, design="space-time", structure={"joint": joint})


@dataclass(frozen=True, kw_only=True, eq=False)
class Situation:
    """Facts of a run, and the problems that they make."""

    mixing: Array
    nodes: tuple[str, ...]
    records: int
    batch_size: int
    epochs: int
    target: PrivacyTarget
    measure: Mapping[str, Any]  # keys of the error of the run
    chosen: Array | None = None  # W of least noise
    weight: str | None = UNSAID  # attribute of edges that W is made of
    name: str = "recommended"

    @property
    def run(self) -> dict[str, int]:
        """The numbers of the run that schemes are made from."""
        return {"records": self.records, "batch_size": self.batch_size, "epochs": self.epochs}

    @property
    def fixed(self) -> FixedEpoch:
        """(k, b) of batches in a fixed order."""
        return FixedEpoch.from_records(**self.run)

    @property
    def error(self) -> ErrorMeasure:
        """The error of the run that ranks."""
        return ErrorMeasure(horizon=self.fixed.horizon, **self.measure)

    @property
    def unit(self) -> float:
        """The factor by which errors of sums, squared, are those of means over a batch; of all
        iterates by which they are those of one step and node."""
        share = 1.0 if self.error.of in OF_THE_END else self.error.horizon * len(self.mixing)
        return 1 / (self.batch_size**2 * share)

    def problem(self, kind: Kind) -> Problem:
        """The problem of a kind of noise."""
        scheme = (BallsInBins if kind.drawn else FixedEpoch).from_records(**self.run)
        said = dict(kind.structure)
        space = SpaceStructure(kind=said.pop("space", "dense"))
        joint = said.pop("joint", "")
        in_time = TimeStructure(kind=said.pop("time", "dense"), **said)
        error = self.error
        common: dict[str, Any] = {
            "mixing": self.chosen if kind.chosen else self.mixing,
            "nodes": self.nodes,
            "participation": scheme,
            "privacy": self.target,
            "error": None if error.plain and kind.design != "space" else error,
            "name": self.name,
        }
        if kind.design == "time":
            return TimeProblem.decentralized(structure=in_time, **common)
        common["max_variance"] = kind.cap
        if kind.design == "space":
            return SpaceProblem(structure=space, **common)
        return SpaceTimeProblem(space=space, time=in_time, joint=joint, **common)

    def tables(self, kind: Kind) -> dict[str, Any]:
        """The tables of its problem file, all but [graph]."""
        target, scheme = self.target, BallsInBins if kind.drawn else FixedEpoch
        found: dict[str, Any] = {
            "name": self.name,
            "design": kind.design,
            "participation": {"kind": scheme.kind, **self.run},
            "privacy": {key: getattr(target, key) for key in TARGET},
        }
        if kind.design == "time":
            found["workload"] = {"kind": "decentralized"}
        if kind.structure:
            found["structure"] = dict(kind.structure)
        if kind.cap is not None:
            found["limits"] = {"max_variance": kind.cap}
        measure = {key: np.asarray(value).tolist() for key, value in self.measure.items()}
        if kind.design == "space":
            measure["horizon"] = self.fixed.horizon
        return found | ({"error": measure} if measure else {})

    def code(self, kind: Kind) -> str:
        """Lines of Python that design and draw the noise of a kind, from a ``graph``."""
        scheme, target = self.fixed, self.target
        classes = {"space": "SpaceProblem", "time": "TimeProblem", "space-time": "SpaceTimeProblem"}
        batches = BallsInBins if kind.drawn else FixedEpoch
        said = ", ".join(f"{key}={getattr(target, key)!r}" for key in TARGET)
        run = ", ".join(f"{key}={value}" for key, value in self.run.items())
        arguments = [
            f"participation=nd.participation.{batches.__name__}.from_records({run})",
            f"privacy=nd.PrivacyTarget({said})",
        ]
        structure = dict(kind.structure)
        space, joint = structure.pop("space", None), structure.pop("joint", None)
        own = {"space": "structure", "time": "structure", "space-time": "space"}[kind.design]
        if space is not None and space != "dense":
            arguments.append(f"{own}=nd.SpaceStructure(kind={space!r})")
        if structure:
            structure["kind"] = structure.pop("time")
            own = "structure" if kind.design == "time" else "time"
            inner = ", ".join(f"{key}={value!r}" for key, value in structure.items())
            arguments.append(f"{own}=nd.TimeStructure({inner})")
        if joint is not None:
            arguments.append(f"joint={joint!r}")
        if self.measure or kind.design == "space":
            measure = {"horizon": scheme.horizon} | dict(self.measure)
            inner = ", ".join(f"{k}={np.asarray(v).tolist()!r}" for k, v in measure.items())
            arguments.append(f"error=nd.ErrorMeasure({inner})")
        if kind.cap is not None:
            arguments.append(f"max_variance={kind.cap!r}")
        if kind.chosen:
            arguments.append(f"weights={LEAST_NOISE!r}")
        elif self.weight != UNSAID:
            arguments.append(f"weight={self.weight!r}")
        made = f"nd.{classes[kind.design]}.from_graph(graph, {', '.join(arguments)})"
        solved = 'nd.baseline(problem, "ldp")' if kind.independent else "nd.solve(problem).design"
        drawn = f"nd.noise(design, node=0, clip={target.clip!r}"
        drawn += (
            ")",
            ", seeds=seeds)  # that neighbours agreed on",
            ", seeds=seeds)  # of the party; who holds them all knows all noise",
        )[kind.trust]
        lines = [f"problem = {made}", f"design = {solved}", f"source = {drawn}"]
        if kind.drawn:
            by = "  # in secret; no other batches keep this epsilon"
            lines.append(f"batches = source.batches({self.records}){by}")
        return "\n".join(lines) + "\n"

    def solved(self, kind: Kind, *, seconds: float = SECONDS) -> Candidate:
        """The design of a kind, and its error by the measure of the run."""
        if kind.independent:
            design, status = baseline(self.problem(kind), "ldp"), "closed form"
        else:
            kind, design, status = self._designed(kind, seconds=seconds)
        return Candidate(
            kind=kind, design=design, status=status, evaluation=evaluate(design, error=self.error)
        )

    def _designed(self, kind: Kind, *, seconds: float) -> tuple[Kind, Design, str]:
        """A kind, a certified design of it and its status; under a cap where W is singular."""
        found = solve(self.problem(kind), time_limit=seconds)
        if found.default_cap is not None:
            kind = replace(kind, name=f"{kind.name}, capped", cap=found.default_cap.times)
        if found.design is None or not found.found:
            expected, got = "enough seconds to solve it", f"{seconds:.3g}"
            raise InputError("time_limit", expected=expected, got=got)
        return kind, found.design, found.status


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Candidate(Shown):
    """A kind of noise in one situation.

    Attributes:
        kind: which.
        design: certified, at the target.
        status: as of a :class:`noisedesign.Solution`; "closed form" of independent noise.
        evaluation: its error by the measure of the run.
    """

    kind: Kind
    design: Design
    status: str
    evaluation: Evaluation

    @property
    def error(self) -> float:
        """Expected error by the measure of the run, squared, at the target."""
        return self.evaluation.error

    @property
    def epsilon(self) -> float:
        """Epsilon of the target, which an account of random batches may stay below."""
        claim = self.design.claim
        assert claim.epsilon is not None
        return claim.epsilon

    @property
    def known_epsilon(self) -> float | None:
        """The epsilon before whoever knows in which batches a record is; None of fixed batches."""
        mu, target = self.design.fixed_mu, self.design.problem.privacy
        if not self.kind.drawn or mu is None or target is None:
            return None
        return epsilon_of(mu=mu, delta=target.delta)

    @property
    def vectors(self) -> int:
        """Vectors of the model's size that a node keeps between steps."""
        form = self.design.noise.strategy
        if form is None or self.kind.independent:
            return 0
        return form.vectors_kept(form.horizon)

    def _title(self) -> str:
        return self.kind.name

    def _facts(self) -> dict[str, object]:
        return {
            "error": self.error,
            "epsilon": self.epsilon,
            "needs": self.kind.needs,
            "vectors kept": self.vectors,
            "gap": self.design.gap,
            "status": self.status,
        }


@dataclass(frozen=True, kw_only=True, repr=False)
class Change(Shown):
    """A change of the situation, and its error.

    Attributes:
        change: in words.
        error: the least error then, over that of the first candidate now: below 1 it saves.
        by: the kind of noise that has it.
    """

    change: str
    error: float
    by: str

    def _title(self) -> str:
        return self.change

    def _facts(self) -> dict[str, object]:
        return {"error over now": self.error, "by": self.by}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Recommendation(Shown):
    """Candidates, the one of least error first.

    Attributes:
        candidates: that were solved, at one privacy target.
        skipped: kinds of noise that were not solved, and why.
        changes: what another situation would save, each of a certified design.
        measure: the error that ranks, in words.
        independent: that error of independent noise with batches in a fixed order.
        situation: of the run.

    Examples:
        >>> import noisedesign as nd
        >>> ring = nd.build_graph("ring", nodes=5)
        >>> run = {"records": 8, "batch_size": 8, "epochs": 2, "epsilon": 1.0}
        >>> found = nd.recommend(ring, weights="metropolis-hastings", **run)
        >>> [one.kind.name for one in found.candidates]
        ['over time', 'independent noise']
        >>> found.changes[0].change, f"{found.changes[0].error:.3f}"
        ('epsilon 2 instead of 1', '0.279')
    """

    candidates: Listing[Candidate]
    skipped: Mapping[str, str]
    changes: Listing[Change]
    measure: str
    independent: float
    situation: Situation

    @property
    def first(self) -> Candidate:
        """The candidate of least error."""
        return self.candidates[0]

    @property
    def design(self) -> Design:
        """The design of the first candidate."""
        return self.first.design

    @property
    def code(self) -> str:
        """Lines of Python that design and draw it, and its batches if random, from a ``graph``."""
        return self.situation.code(self.first.kind)

    @property
    def records(self) -> list[dict[str, Any]]:
        """A record for every candidate, for tables and JSON."""
        return [
            {
                "noise": one.kind.name,
                "error": one.error * self.situation.unit,
                "relative": one.error / self.independent,
                "epsilon": one.epsilon,
                "needs": one.kind.needs,
                "does not hold before": "; ".join(one.kind.holds_not),
                "epsilon if batches are known": one.known_epsilon,
                "vectors kept": one.vectors,
                "gap": one.design.gap,
                "status": one.status,
            }
            for one in self.candidates
        ]

    @property
    def sentences(self) -> list[str]:
        """Before whom the first does not hold, what would change it, and what was not solved."""
        first, found = self.first, [f"Errors are those of {self.measure}."]
        if first.kind.holds_not:
            found.append(
                f"Its epsilon does not hold before {'; nor before '.join(first.kind.holds_not)}."
            )
        if first.known_epsilon is not None:
            found.append(f"Before whoever knows the batches epsilon is {first.known_epsilon:.4g}.")
        for one in self.changes:
            share = 1 - one.error
            word = "less" if share > 0 else "more"
            found.append(f"With {one.change}: {abs(share):.1%} {word} error ({one.by}).")
        found += [f"Not solved: {name}: {why}" for name, why in self.skipped.items()]
        return found

    @property
    def values(self) -> dict[str, Any]:
        """All of it as values for JSON, with the tables of a problem file but [graph]."""
        kind = self.first.kind
        return {
            "measure": self.measure,
            "candidates": self.records,
            "changes": [{"change": c.change, "error": c.error, "by": c.by} for c in self.changes],
            "skipped": dict(self.skipped),
            "code": self.code,
            "problem": self.situation.tables(kind),
        }

    def _title(self) -> str:
        return f"Recommended: {self.first.kind.name}"

    def _facts(self) -> dict[str, object]:
        found: dict[str, object] = {
            f"{n}. {one.kind.name}": f"{one.error / self.independent:.4g} ({one.kind.needs})"
            for n, one in enumerate(self.candidates, start=1)
        }
        found |= {f"not solved: {name}": why for name, why in self.skipped.items()}
        found |= {one.change: f"{one.error:.4g} of it, {one.by}" for one in self.changes}
        return found


class _Search:
    """Kinds of noise solved one after another within a time, each once."""

    def __init__(self, seconds: float, progress: Callable[[str], None] | None) -> None:
        self.ends, self.seconds = time.perf_counter() + seconds, seconds
        self.progress = progress
        self.found: list[Candidate] = []
        self.skipped: dict[str, str] = {}

    @property
    def left(self) -> float:
        return self.ends - time.perf_counter()

    def solved(self, situation: Situation, kind: Kind, *, until: float = 0.0) -> Candidate | None:
        """A candidate, or None where there was no time or no such noise; ``until`` is kept free."""
        if (seconds := self.left - until) <= 0:
            self.skipped[kind.name] = f"no time was left of {self.seconds:g} seconds"
            return None
        if self.progress is not None:
            self.progress(kind.name)
        try:
            return situation.solved(kind, seconds=seconds)
        except InputError as error:
            self.skipped[kind.name] = str(error)
            return None


def recommend(
    graph: nx.Graph | Array,
    *,
    records: int,
    batch_size: int,
    epochs: int,
    epsilon: float,
    delta: float = DEFAULT_DELTA,
    clip: float = 1.0,
    adjacency: str = DEFAULT_ADJACENCY,
    trust: str = "nobody",
    random_batches: bool = True,
    weights: str | None = None,
    weight: str | None = UNSAID,
    curvature: Any = None,
    learning_rate: float | None = None,
    dimension: int | None = None,
    memory: float | None = None,
    time_limit: float = SECONDS,
    progress: Callable[[str], None] | None = None,
) -> Recommendation:
    """The noise of least error for a graph, records and an epsilon, among all kinds that fit.

    Candidates are solved and certified at one privacy target, before a reader of all messages, and
    ranked by one error of the whole run: that of all models after every step, or, where the
    curvature of the loss is known, what noise adds to the expected loss of the last models.

    Args:
        graph: of the nodes, connected, or W, shape (n, n).
        records: of a node.
        batch_size: records of a step of a node.
        epochs: how often a record takes part.
        epsilon: of the whole run.
        delta: of the whole run.
        clip: bound on the norm of one record's gradient, not squared.
        adjacency: as of :class:`noisedesign.PrivacyTarget`.
        trust: "nobody", "neighbours share keys" or "a trusted party deals noise"; more trust
            includes less.
        random_batches: whether nodes may draw their batches at random, in secret.
        weights: of :func:`noisedesign.mixing_matrix`; None: Metropolis-Hastings, and beside them
            those of least noise of the same mixing rate. W itself is taken as it is.
        weight: the attribute of edges that weighs them, as of :func:`noisedesign.mixing_matrix`.
        curvature: of the loss, as of :class:`noisedesign.ErrorMeasure`.
        learning_rate: of steps along means over a batch, needed beside ``curvature``.
        dimension: parameters of the model.
        memory: bytes that a node may keep of noise between steps; needs ``dimension``.
        time_limit: seconds for all candidates.
        progress: called with the name of every kind of noise before it is solved.

    Returns:
        Candidates, the first of least error, and what another situation would save.

    Raises:
        InputError: naming the field that is wrong, or the graph; a memory without a dimension.

    Examples:
        >>> import noisedesign as nd
        >>> ring = nd.build_graph("ring", nodes=5)
        >>> run = {"records": 96, "batch_size": 8, "epochs": 1, "epsilon": 1.0}
        >>> party = "a trusted party deals noise"
        >>> found = nd.recommend(ring, trust=party, random_batches=False, **run)
        >>> found.first.kind.name, found.first.kind.needs
        ('any covariance', 'a party that deals each its own noise')
    """
    _checks.one_of(trust, field="trust", allowed=TRUST)
    level, seconds = TRUST.index(trust), _checks.real(time_limit, field="time_limit", low=0)
    kept = _vectors(dimension, memory)
    target = PrivacyTarget(epsilon=epsilon, delta=delta, clip=clip, adjacency=adjacency)
    given = isinstance(graph, nx.Graph)
    rule: Any = {"weights": weights or "metropolis-hastings", "weight": weight}
    mixing = mixing_matrix(graph, **rule) if given else graph
    situation = Situation(
        mixing=np.asarray(mixing),
        nodes=node_names(graph) if given else (),
        records=records,
        batch_size=batch_size,
        epochs=epochs,
        target=target,
        measure=_measure(curvature, learning_rate),
        weight=weight,
    )
    search, fixed = _Search(seconds, progress), situation.fixed
    pairs = fixed.horizon * len(situation.mixing)
    kinds = [
        kind
        for kind in kinds_of(level, kept=kept)
        if kind.structure.get("joint") != "full" or pairs <= MOST_PAIRS
    ]
    if random_batches:
        kinds = _with_random_batches(kinds, fixed)
    reserved = (1 - SHARE) * seconds
    for kind in kinds:
        if (one := search.solved(situation, kind, until=reserved)) is not None:
            search.found.append(one)
    _check_found(search)
    if given and weights is None:
        situation = _with_chosen(search, situation, until=reserved)
    best = min(search.found, key=lambda one: one.error)
    plain = next(one for one in search.found if one.kind.independent and not one.kind.drawn)
    return Recommendation(
        candidates=Listing(sorted(search.found, key=lambda one: one.error)),
        skipped=search.skipped,
        changes=Listing(_changes(search, situation, best, level, kept)),
        measure=situation.error.of,
        independent=plain.error,
        situation=situation,
    )


def _check_found(search: _Search) -> None:
    if not any(one.kind.independent and not one.kind.drawn for one in search.found):
        got = next(iter(search.skipped.values()), "nothing")
        raise InputError("time_limit", expected="seconds for one candidate at least", got=got)


def _vectors(dimension: int | None, memory: float | None) -> int | None:
    """Vectors of the model's size that fit into the memory of a node; None without a limit."""
    if memory is None:
        return None
    if dimension is None:
        raise InputError("dimension", expected="that of the model, beside memory", got="nothing")
    size = BYTES * _checks.positive_int(dimension, field="dimension")
    return int(_checks.nonnegative(memory, field="memory") // size)


def _measure(curvature: Any, learning_rate: float | None) -> dict[str, Any]:
    """The keys of the error that counts."""
    if learning_rate is not None:
        _checks.scale(learning_rate, field="learning_rate")
    if curvature is None:
        return {} if learning_rate is None else {"learning_rates": learning_rate}
    if learning_rate is None:
        raise InputError("learning_rate", expected="that of the run, beside curvature", got="none")
    return {"of": "loss", "curvature": curvature, "learning_rates": learning_rate}


def _with_random_batches(kinds: list[Kind], fixed: FixedEpoch) -> list[Kind]:
    """Kinds, and those of them that may have random batches, the quickest to solve first."""
    drawn = [
        replace(kind, name=f"{kind.name}, random batches", drawn=True)
        for kind in kinds
        if fixed.separation > 1 and kind.structure.get("joint") not in ("modal", "full")
    ]
    slow = ("time", "space-time")  # whose random batches are searched for
    quick = [kind for kind in drawn if kind.independent or kind.design not in slow]
    rest = [kind for kind in drawn if kind not in quick]
    return sorted(quick + kinds + rest, key=lambda kind: kind.drawn and kind in rest)


def _with_chosen(search: _Search, situation: Situation, *, until: float) -> Situation:
    """Add the best kinds under the W of least noise of one step, and return W with the rest."""
    chosen = least_noise_mixing(SpaceProblem(mixing=situation.mixing))
    if chosen.status == "given":
        return situation
    situation = replace(situation, chosen=chosen.mixing)
    for one in sorted(search.found, key=lambda one: one.error)[:MOST_CHOSEN]:
        kind = replace(one.kind, name=f"{one.kind.name}, W of least noise", chosen=True)
        if (found := search.solved(situation, kind, until=until)) is not None:
            search.found.append(found)
    return situation


def _changes(
    search: _Search, situation: Situation, best: Candidate, level: int, kept: int | None
) -> Iterator[Change]:
    """Solve for a larger epsilon, larger batches and more trust."""
    aside = _Search(max(search.left, 1e-3), search.progress)
    target = situation.target
    others = [
        (
            f"epsilon {target.epsilon + 1:g} instead of {target.epsilon:g}",
            replace(situation, target=replace(target, epsilon=target.epsilon + 1)),
            [best.kind],
        )
    ]
    if 2 * situation.batch_size <= situation.records:
        twice = _with_larger_batches(situation)
        change = f"batches of {twice.batch_size}, and steps twice as large"
        others.append((change, twice, [best.kind]))
    for higher in range(level + 1, len(TRUST)):
        kinds = [
            replace(kind, drawn=best.kind.drawn, chosen=best.kind.chosen)
            for kind in kinds_of(higher, kept=kept)
            if kind.trust == higher and kind.structure.get("joint") not in ("modal", "full")
        ]
        others.append((TRUST[higher], situation, kinds))
    for change, other, kinds in others:
        found = [one for kind in kinds if (one := aside.solved(other, kind)) is not None]
        if not found:
            search.skipped[change] = f"no time was left of {search.seconds:g} seconds"
            continue
        least = min(found, key=lambda one: one.error)
        ratio = least.error * other.unit / (best.error * situation.unit)
        yield Change(change=change, error=ratio, by=least.kind.name)


def _with_larger_batches(situation: Situation) -> Situation:
    """The same run in half as many steps that are twice as large."""
    measure = dict(situation.measure)
    measure["learning_rates"] = 2 * measure.get("learning_rates", 1.0)
    return replace(situation, batch_size=2 * situation.batch_size, measure=measure)
