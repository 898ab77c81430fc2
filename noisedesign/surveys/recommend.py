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
from noisedesign.base.monitor import Stop
from noisedesign.base.shown import Listing, Shown
from noisedesign.design.buffer_search import solve_unbounded
from noisedesign.design.design import Design
from noisedesign.design.solve import solve
from noisedesign.design.unbounded import UnboundedDesign
from noisedesign.mechanisms.baselines import baseline
from noisedesign.privacy.accounting import epsilon_of, mu_of
from noisedesign.privacy.target import DEFAULT_ADJACENCY, DEFAULT_DELTA, PrivacyTarget
from noisedesign.surveys.chosen_mixing import chosen_mixings
from noisedesign.surveys.situation import ENDLESS, FASTEST, TRUST, Kind, Situation, kinds_of
from noisedesign.system.fastest_mixing import fastest_mixing
from noisedesign.system.graph import LEAST_NOISE, chosen_links, mixing_matrix, node_names
from noisedesign.system.participation import FixedEpoch
from noisedesign.system.rules import UNSAID, WEIGHTS
from noisedesign.tasks.evaluate import Evaluation, evaluate
from noisedesign.tasks.step_seconds import COORDINATES, coordinates_of, step_seconds

SECONDS = 120.0  # of a recommendation; more lets slower candidates end on graphs of hundreds
MOST_PAIRS = 600  # of node and step for noise of any kind: its solver takes minutes beyond
BYTES = 8  # of a coordinate of a vector that is kept
SHARE = 0.6  # of the time for candidates; the rest is for what would change
PART = 0.25  # of the time left that a kind may have where more than four are to come
DRAWN = ", random batches"  # behind the names of kinds
MOST_CHOSEN = 2  # kinds that are tried under the W of least noise, too


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Candidate(Shown):
    """A kind of noise in one situation.

    Attributes:
        kind: which.
        design: certified, at the target.
        status: as of a :class:`noisedesign.Solution`; "closed form" of independent noise,
            "searched" of noise without a horizon.
        evaluation: its error by the measure of the run.
        step_seconds: a node takes for the noise of a step, measured here; None: not measured.
    """

    kind: Kind
    design: Design | UnboundedDesign
    status: str
    evaluation: Evaluation
    step_seconds: float | None = None

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
        target = self.design.problem.privacy
        if not self.kind.drawn or target is None or isinstance(self.design, UnboundedDesign):
            return None
        mu = self.design.fixed_mu
        return None if mu is None else epsilon_of(mu=mu, delta=target.delta)

    @property
    def vectors(self) -> int:
        """Vectors of the model's size that a node keeps between steps."""
        if isinstance(self.design, UnboundedDesign):
            return len(self.design.scales)
        form = self.design.noise.strategy
        if form is None or self.kind.independent:
            return 0
        return form.vectors_kept(form.horizon)

    @property
    def gap(self) -> float | None:
        """The gap of its objective to a bound on its problem; None without a horizon."""
        return getattr(self.design, "gap", None)

    def _title(self) -> str:
        return self.kind.name

    def _facts(self) -> dict[str, object]:
        return {
            "error": self.error,
            "epsilon": self.epsilon,
            "needs": self.kind.needs,
            "vectors kept": self.vectors,
            "gap": self.gap,
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

    @property
    def sentence(self) -> str:
        """The sentence that says how much it saves or costs."""
        share, said = 1 - self.error, f"{'If' if self.change in TRUST else 'With'} {self.change}"
        if abs(share) < 5e-4:
            return f"{said}: the same error ({self.by})."
        word = "less" if share > 0 else "more"
        return f"{said}: {abs(share):.1%} {word} error ({self.by})."

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
        dimension: of the model, if it is known.
        coordinates: of a model, that the seconds of a step are measured for.
        unanswered: changes that were not solved, and why.
        incomplete: in words, how many kinds were not solved or stopped early for want of time;
            empty where none.

    Examples:
        >>> import noisedesign as nd
        >>> ring = nd.build_graph("ring", nodes=5)
        >>> run = {"records": 8, "batch_size": 8, "epochs": 2, "epsilon": 1.0}
        >>> found = nd.recommend(ring, weights="metropolis-hastings", **run)
        >>> found.first.kind.name, len(found.candidates)
        ('over time', 3)
        >>> found.changes[0].change, f"{found.changes[0].error:.3f}"
        ('epsilon 2 instead of 1', '0.279')
    """

    candidates: Listing[Candidate]
    skipped: Mapping[str, str]
    changes: Listing[Change]
    measure: str
    independent: float
    situation: Situation
    dimension: int | None = None
    coordinates: int = COORDINATES
    unanswered: Mapping[str, str] = field(default_factory=dict)
    incomplete: str = ""

    @property
    def first(self) -> Candidate:
        """The candidate of least error."""
        return self.candidates[0]

    @property
    def design(self) -> Design | UnboundedDesign:
        """The design of the first candidate."""
        return self.first.design

    @property
    def code(self) -> str:
        """Lines of Python that design and draw it, and its batches if random, from a ``graph``,
        which a recommendation of a file or a name makes first."""
        return self.situation.code(self.first.kind)

    @property
    def records(self) -> list[dict[str, Any]]:
        """A record for every candidate, for tables and JSON."""
        return [
            {
                "noise": one.kind.name,
                "mechanism": one.kind.mechanism,
                "error": one.error * self.situation.unit,
                "relative": one.error / self.independent,
                "epsilon": one.epsilon,
                "needs": one.kind.needs,
                "does not hold before": "; ".join(one.kind.holds_not),
                "epsilon if batches are known": one.known_epsilon,
                "vectors kept": one.vectors,
                "bytes kept": None
                if self.dimension is None
                else BYTES * self.dimension * one.vectors,
                "seconds a step": one.step_seconds,
                "gap": one.gap,
                "status": one.status,
            }
            for one in self.candidates
        ]

    @property
    def sentences(self) -> list[str]:
        """Whether it is incomplete, before whom the first does not hold, what would change it, and
        what was not solved."""
        first, found = self.first, [f"{self.incomplete.capitalize()}."] if self.incomplete else []
        found.append(f"The error is that of {self.situation.measured}.")
        found.append("Relative is over that of independent noise with batches in a fixed order.")
        if any(one.step_seconds is not None for one in self.candidates):
            found.append(
                "Seconds a step are measured here, at the node of most neighbours, at the end of "
                f"the run, for {self.coordinates} coordinates of the model."
            )
        if first.kind.holds_not:
            holds_not = "; nor before ".join(first.kind.holds_not)
            found.append(f"The epsilon of the first does not hold before {holds_not}.")
        if first.known_epsilon is not None:
            found.append(f"Before whoever knows the batches epsilon is {first.known_epsilon:.4g}.")
        found += [one.sentence for one in self.changes]
        unsolved = [*self.skipped.items(), *self.unanswered.items()]
        return found + [f"Not solved: {name}: {why}" for name, why in unsolved]

    @property
    def values(self) -> dict[str, Any]:
        """All of it as values for JSON, with the tables of a problem file but
        [graph], and W where it was chosen for its noise."""
        kind = self.first.kind
        return {
            "incomplete": self.incomplete,
            "measure": self.measure,
            "seconds a step for coordinates": self.coordinates,
            "candidates": self.records,
            "changes": [{"change": c.change, "error": c.error, "by": c.by} for c in self.changes],
            "skipped": dict(self.skipped),
            "changes not solved": dict(self.unanswered),
            "code": self.code,
            "problem": self.situation.tables(kind),
            "mixing of it": None if kind.weights is None else kind.weights.tolist(),
        }

    def _title(self) -> str:
        title = f"Recommended: {self.first.kind.name}"
        return f"{title}; {self.incomplete}" if self.incomplete else title

    def _facts(self) -> dict[str, object]:
        found: dict[str, object] = {
            f"{n}. {one.kind.name}": f"{one.error / self.independent:.4g} ({one.kind.needs})"
            for n, one in enumerate(self.candidates, start=1)
        }
        unsolved = [*self.skipped.items(), *self.unanswered.items()]
        found |= {f"not solved: {name}": why for name, why in unsolved}
        found |= {one.change: f"{one.error:.4g} of it, {one.by}" for one in self.changes}
        return found


class _Search:
    """Kinds of noise solved one after another within a time, each once; Ctrl-C ends it early."""

    def __init__(self, seconds: float, progress: Callable[[str], None] | None) -> None:
        self.ends = time.perf_counter() + seconds
        self.late = f"no time was left of {seconds:g} seconds"
        self.progress = progress
        self.found: list[Candidate] = []
        self.skipped: dict[str, str] = {}
        self.short: dict[str, float] = {}  # seconds of kinds that would have needed more
        self.unanswered: dict[str, str] = {}

    @property
    def left(self) -> float:
        return self.ends - time.perf_counter()

    def stop(self) -> None:
        """Start nothing more."""
        self.ends, self.late = -np.inf, "interrupted"

    def solved(
        self, situation: Situation, kind: Kind, *, until: float = 0.0, others: int = 0
    ) -> Candidate | None:
        """A candidate, or None where there was no time or no such noise; ``until`` is kept free,
        and as many ``others`` are still to come."""
        if (seconds := self.left - until) <= 0:
            self.skipped[kind.name], self.short[kind.name] = self.late, 0.0
            return None
        seconds *= max(1 / (1 + others), PART)
        if self.progress is not None:
            self.progress(kind.name)
        try:
            found = solved(situation, kind, seconds=seconds)
        except InputError as error:
            self.skipped[kind.name] = str(error)
            if error.field == "time_limit":
                self.short[kind.name] = seconds
            return None
        except KeyboardInterrupt:
            self.stop()
            self.skipped[kind.name], self.short[kind.name] = self.late, 0.0
            return None
        if found.status == Stop.INTERRUPTED:
            self.stop()
        self.short.pop(kind.name, None)
        self.skipped.pop(kind.name, None)
        if found.status in (Stop.TIME_LIMIT, Stop.INTERRUPTED):
            self.short[kind.name] = seconds
        return found

    def add(self, situation: Situation, kinds: list[Kind], *, until: float, others: int) -> None:
        """Find candidates of all kinds, and of those whose part of the time was too short once more
        where more of it is left."""
        for place, kind in enumerate(kinds, start=1):
            to_come = len(kinds) - place + others
            if (one := self.solved(situation, kind, until=until, others=to_come)) is not None:
                self.found.append(one)
        for kind in [kind for kind in kinds if kind.name in self.short]:
            if (self.left - until) / (1 + others) > 2 * self.short[kind.name] > 0:
                known = kind.name not in self.skipped
                one = self.solved(situation, kind, until=until, others=others)
                self.found += [] if one is None else [one]
                if known:
                    self.skipped.pop(kind.name, None)
        best: dict[str, Candidate] = {}
        for one in self.found:
            if one.error < best.setdefault(one.kind.name, one).error:
                best[one.kind.name] = one
        self.found = list(best.values())

    def incomplete(self, seconds: float) -> str:
        """Say how many kinds were not solved, or stopped early, for want of time."""
        late = len(self.short.keys() & self.skipped.keys())
        early = sum(one.status in (Stop.TIME_LIMIT, Stop.INTERRUPTED) for one in self.found)
        if not late + early:
            return ""
        found = [f"{late} of {len(self.found) + len(self.skipped)} kinds were not solved"] * bool(
            late
        )
        found += [f"{early} stopped early"] * bool(early)
        said = f"incomplete: {' and '.join(found)}"
        if self.late == "interrupted":
            return f"{said}, as it was interrupted"
        return f"{said} in {seconds:g} s; a longer --time-limit (time_limit) solves them"


def solved(situation: Situation, kind: Kind, *, seconds: float) -> Candidate:
    """The design of a kind, and its error by the measure of the run."""
    design: Design | UnboundedDesign
    if kind.design == ENDLESS:
        design, status = solve_unbounded(situation.endless_problem(kind)), "searched"
    elif kind.independent:
        design, status = baseline(situation.problem(kind), "ldp"), "closed form"
    else:
        kind, design, status = _designed(situation, kind, seconds=seconds)
    evaluation = evaluate(design, error=situation.error)
    return Candidate(kind=kind, design=design, status=status, evaluation=evaluation)


def _designed(situation: Situation, kind: Kind, *, seconds: float) -> tuple[Kind, Design, str]:
    """A kind, a certified design of it and its status; under a cap where W is singular."""
    found = solve(situation.problem(kind), time_limit=seconds)
    if found.default_cap is not None:
        kind = replace(kind, name=f"{kind.name}, capped", cap=found.default_cap.times)
    if found.design is None or not found.found:
        expected, got = "enough seconds to solve it", f"{seconds:.3g}"
        raise InputError("time_limit", expected=expected, got=got)
    return kind, found.design, found.status


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
        weights: of :func:`noisedesign.mixing_matrix`, or "fastest-mixing"; None:
            Metropolis-Hastings, and beside them those of least noise of the same mixing rate. W
            itself is taken as it is.
        weight: the attribute of edges that weighs them, as of :func:`noisedesign.mixing_matrix`.
        curvature: of the loss, as of :class:`noisedesign.ErrorMeasure`.
        learning_rate: of steps along means over a batch, needed beside ``curvature``.
        dimension: parameters of the model.
        memory: bytes that a node may keep of noise between steps; needs ``dimension``.
        time_limit: seconds for all of it; no solve begins later, one that began may take longer,
            and Ctrl-C ends it with what was solved.
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
    if not given and np.ndim(np.asarray(graph)) == 0:
        remedy = '`nx.read_weighted_edgelist("FILE")` reads a file of edges, '
        remedy += "nd.build_graph a graph by name."
        got = _checks.describe(graph)
        raise InputError("graph", expected="a networkx graph, or W", got=got, remedy=remedy)
    situation = Situation(
        mixing=_mixing(graph, weights, weight) if given else np.asarray(graph),
        nodes=node_names(graph) if given else (),
        records=records,
        batch_size=batch_size,
        epochs=epochs,
        target=target,
        measure=_measure(curvature, learning_rate),
        weights=weights if given else None,
        weight=weight,
    )
    search, fixed = _Search(seconds, progress), situation.fixed
    pairs = fixed.horizon * len(situation.mixing)
    kinds = [
        kind
        for kind in kinds_of(level, kept=kept)
        if kind.structure.get("joint") != "full" or pairs <= MOST_PAIRS
    ]
    kinds = _quickest_first(_with_random_batches(kinds, fixed) if random_batches else kinds)
    reserved, choose = (1 - SHARE) * seconds, given and weights is None and weight in (UNSAID, None)
    search.add(situation, kinds, until=reserved, others=MOST_CHOSEN * choose)
    _check_found(search)
    if choose:
        _add_chosen(search, situation, until=reserved)
    incomplete = search.incomplete(seconds)
    plain = next(one for one in search.found if one.kind.independent and not one.kind.drawn)
    ranked = sorted(search.found, key=lambda one: one.error)
    coordinates = coordinates_of([one.design for one in ranked], dimension=dimension)
    ranked = list(_measured(ranked, search, coordinates=coordinates))
    return Recommendation(
        candidates=Listing(ranked),
        skipped=search.skipped,
        changes=Listing(_changes(search, situation, ranked[0], level, kept)),
        unanswered=search.unanswered,
        incomplete=incomplete,
        measure=situation.error.of,
        independent=plain.error,
        situation=situation,
        dimension=dimension,
        coordinates=coordinates,
    )


def _mixing(graph: nx.Graph, weights: str | None, weight: str | None) -> Array:
    """W of a graph by a rule, or chosen to mix fastest."""
    if weights == FASTEST:
        return fastest_mixing(chosen_links(graph, weight, beside=FASTEST)).mixing
    allowed = (*WEIGHTS, LEAST_NOISE, FASTEST)
    rule = _checks.one_of(weights or "metropolis-hastings", field="weights", allowed=allowed)
    return mixing_matrix(graph, weights=rule, weight=weight)


def _measured(ranked: list[Candidate], search: _Search, *, coordinates: int) -> Iterator[Candidate]:
    """Candidates with the seconds of a step, while there is time."""
    for one in ranked:
        measured = None
        if search.left > 0:
            measured = step_seconds(one.design, coordinates=coordinates)
        yield replace(one, step_seconds=measured)


def _check_found(search: _Search) -> None:
    if not any(one.kind.independent and not one.kind.drawn for one in search.found):
        if search.late == "interrupted":
            raise KeyboardInterrupt
        got = next(iter(search.skipped.values()), "nothing")
        raise InputError("time_limit", expected="seconds for one candidate at least", got=got)


def _vectors(dimension: int | None, memory: float | None) -> int | None:
    """Vectors of the model's size that fit into the memory of a node; None without a limit."""
    if dimension is not None:
        _checks.positive_int(dimension, field="dimension")
    if memory is None:
        return None
    if dimension is None:
        raise InputError("dimension", expected="that of the model, beside memory", got="nothing")
    return int(_checks.nonnegative(memory, field="memory") // (BYTES * dimension))


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
    """Kinds, and those of them that may have random batches."""
    drawn = [
        replace(kind, name=f"{kind.name}{DRAWN}", drawn=True)
        for kind in kinds
        if fixed.separation > 1
        and kind.design != ENDLESS
        and kind.structure.get("joint") not in ("modal", "full")
    ]
    return kinds + drawn


def _quickest_first(kinds: list[Kind]) -> list[Kind]:
    """Kinds in the order of the work: without steps, over time, both, and what is searched for."""
    order = ("space", "time", "space-time")

    def work(kind: Kind) -> int:
        if kind.independent or kind.design == "space":
            return 0
        searched = kind.drawn or kind.design == ENDLESS  # the latter is seldom the best
        return order.index("time" if kind.design == ENDLESS else kind.design) + 3 * searched

    return sorted(sorted(kinds, key=work), key=lambda kind: kind.design == ENDLESS)


def _add_chosen(search: _Search, situation: Situation, *, until: float) -> None:
    """Add the best kinds under a W of least noise: for their own error where that is found in time,
    else for that of one step."""
    known: dict[str, list[tuple[str, Array]]] = {}
    ranked = sorted(search.found, key=lambda one: one.error)
    for one in [one for one in ranked if one.kind.design != ENDLESS][:MOST_CHOSEN]:
        if (seconds := search.left - until) <= 0:
            name = f"{one.kind.name}, W of least noise"
            search.skipped[name], search.short[name] = search.late, 0.0
            continue
        plain = one.kind.plain
        if search.progress is not None:
            search.progress(f"W of least noise, {plain.name}")
        key = str((plain.design, plain.structure))
        try:
            if key not in known:
                known[key] = chosen_mixings(situation, plain, seconds=seconds / 2)
        except KeyboardInterrupt:
            search.stop()
        name, choices = f"{one.kind.name}, W of least noise", known.get(key, [])
        # With random batches another of them may be the best.
        tried = choices if one.kind.drawn else choices[:1]
        kinds = [replace(one.kind, name=name, chosen=of, weights=w) for of, w in tried]
        solved = [search.solved(situation, kind, until=until) for kind in kinds]
        if found := [one for one in solved if one is not None]:
            search.skipped.pop(name, None)
            search.found.append(min(found, key=lambda one: one.error))


def _changes(
    search: _Search, situation: Situation, best: Candidate, level: int, kept: int | None
) -> Iterator[Change]:
    """Solve for a larger epsilon, larger batches and more trust.

    With batches in a fixed order the noise of a larger epsilon is the same, times a number."""
    aside = _Search(max(search.left, 0.0), search.progress)
    aside.late = search.late
    target = situation.target
    others: list[tuple[str, Situation, list[Kind]]] = []
    change = f"epsilon {target.epsilon + 1:g} instead of {target.epsilon:g}"
    if best.kind.drawn:
        larger = replace(target, epsilon=target.epsilon + 1)
        others.append((change, replace(situation, target=larger), [best.kind]))
    elif search.late != "interrupted":
        mus = [mu_of(epsilon=target.epsilon + more, delta=target.delta) for more in (0, 1)]
        yield Change(change=change, error=(mus[0] / mus[1]) ** 2, by=best.kind.name)
    # Expected sizes of drawn batches double only where their number halves.
    halves = not best.kind.drawn or situation.fixed.separation % 2 == 0
    if 2 * situation.batch_size <= situation.records and halves:
        twice = _with_larger_batches(situation)
        change, kind = f"batches of {twice.batch_size}, and steps twice as large", best.kind
        if twice.fixed.separation == 1:  # every batch has all records, and nothing is drawn
            kind = replace(kind, name=kind.name.replace(DRAWN, ""), drawn=False)
        others.append((change, twice, [kind]))
    for higher in range(level + 1, len(TRUST)):
        kinds = [
            replace(
                kind,
                name=f"{kind.name}{DRAWN}" if best.kind.drawn else kind.name,
                drawn=best.kind.drawn,
                chosen=best.kind.chosen,
                weights=best.kind.weights,
            )
            for kind in kinds_of(higher, kept=kept)
            if kind.trust == higher and kind.structure.get("joint") not in ("modal", "full")
        ]
        others.append((TRUST[higher], situation, kinds))
    to_come = sum(len(kinds) for *_, kinds in others)
    for change, other, kinds in others:
        found = []
        for kind in kinds:
            to_come -= 1
            if (one := aside.solved(other, kind, others=to_come)) is not None:
                found.append(one)
        if not found:
            search.unanswered[change] = next(iter(aside.skipped.values()), aside.late)
            continue
        least = min(found, key=lambda one: one.error)
        if least.status == Stop.TIME_LIMIT != best.status:  # which says more of the clock
            search.unanswered[change] = aside.late
            continue
        ratio = least.error * other.unit / (best.error * situation.unit)
        yield Change(change=change, error=ratio, by=least.kind.name)


def _with_larger_batches(situation: Situation) -> Situation:
    """The same run in half as many steps that are twice as large."""
    measure = dict(situation.measure)
    measure["learning_rates"] = 2 * measure.get("learning_rates", 1.0)
    return replace(situation, batch_size=2 * situation.batch_size, measure=measure)
