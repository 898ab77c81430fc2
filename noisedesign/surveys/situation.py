"""The kinds of noise for a graph, records and an epsilon, as problems, problem files and code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import networkx as nx
import numpy as np

from noisedesign.base.checks import Array, InputError
from noisedesign.forms.structure import SpaceStructure, TimeStructure
from noisedesign.privacy.target import PrivacyTarget
from noisedesign.problem.problem import Problem, SpaceProblem, SpaceTimeProblem, TimeProblem
from noisedesign.problem.unbounded import UnboundedProblem
from noisedesign.surveys.lines import broken
from noisedesign.system.graph import LEAST_NOISE
from noisedesign.system.participation import BallsInBins, FixedEpoch
from noisedesign.system.rules import UNSAID
from noisedesign.system.workloads import ErrorMeasure
from noisedesign.system.workloads.error import OF_THE_END

TRUST = ("nobody", "neighbours share keys", "a trusted party deals noise")
TARGET = ("epsilon", "delta", "clip", "adjacency")  # what is said of a target
FASTEST = "fastest-mixing"  # weights that are chosen, and no rule
KEPT = (1, 2, 4, 8, 16)  # bands and buffers that are tried under a limit of memory
BUFFERS = 4  # of noise without a horizon: twice as many gain about 1 %, and take thrice as long
NOTHING_SHARED = "nothing shared"
FROM_SECRETS = "secret batches, drawn at random"
GUIDE = "# docs/guides/seeds-without-a-dealer.md"
SEEDS = (  # where those of a node are from, by the index of TRUST
    (),
    ("# seeds: what this node and its neighbours agreed on, see", GUIDE),
    ("# seeds: what the party deals to this node; who holds all knows all noise, see", GUIDE),
)
ENDLESS = "unbounded"  # the design of noise without a horizon
OF_ONE_STEP, OF_ITS_OWN = "one step", "its own error"  # errors that W is chosen for


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of noise that may be recommended, by the tables that a problem file says it in."""

    name: str
    trust: int  # index of TRUST that it takes at least
    design: str = "time"
    structure: Mapping[str, Any] = field(default_factory=dict)
    drawn: bool = False  # whether batches are drawn at random
    independent: bool = False  # whether it is what nobody designs
    chosen: str = ""  # the error that its W is of least noise for, if any
    weights: Array | None = field(default=None, compare=False, repr=False)  # that W
    cap: float | None = None  # on variances of nodes, where W is singular

    @property
    def mechanism(self) -> str:
        """The name that pictures give a colour."""
        return "independent" if self.independent else self.structure.get("joint", self.design)

    @property
    def needs(self) -> str:
        """Who shares what."""
        shared = (NOTHING_SHARED, "a key for every edge", "a party that deals each its own noise")
        own = shared[self.trust]
        return f"{own}; {FROM_SECRETS}" if self.drawn else own

    @property
    def plain(self) -> Kind:
        """The kind, with batches in a fixed order, whose error W is chosen for.

        Under batches that are drawn steps hardly correlate: W of noise across nodes and steps is
        that of noise across nodes."""
        if self.drawn and self.structure.get("joint") == "kronecker":
            across = {"space": self.structure["space"]}
            return Kind(name=self.name, trust=self.trust, design="space", structure=across)
        return replace(self, drawn=False, independent=False, chosen="", weights=None, cap=None)

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
        in_time += [
            (f"over time, {m} buffer{'s' * (m > 1)}", {"time": "blt", "buffers": m}) for m in few
        ]
    for said, structure in in_time:
        yield Kind(name=said, trust=0, structure=structure)
    if buffers := BUFFERS if kept is None else min(BUFFERS, kept):
        endless = {"time": "blt", "buffers": buffers}
        yield Kind(name="without a horizon", trust=0, design=ENDLESS, structure=endless)
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


def links_of(problem: Any) -> nx.Graph:
    """The graph along whose links the W of a problem sends, with the names of its nodes."""
    links = nx.from_numpy_array(np.asarray(problem.mixing) > 0)
    links.remove_edges_from(list(nx.selfloop_edges(links)))
    return nx.relabel_nodes(links, dict(enumerate(problem.nodes)))


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
    weights: str | None = None  # of a graph; None: the default
    weight: str | None = UNSAID  # attribute of edges that W is made of
    name: str = "recommended"
    source: str = ""  # the name of the graph, or of its file, where it has one
    made: str = ""  # lines of Python that make the graph of it

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
    def measured(self) -> str:
        """The error that ranks, in words."""
        rates = "" if "learning_rates" in self.measure else " under steps of 1"
        if self.error.of in OF_THE_END:
            return "the loss that noise adds to the last models, in expectation"
        return f"all models after every step{rates}, squared, a coordinate, on average"

    @property
    def unit(self) -> float:
        """The factor by which errors of sums, squared, are those of means over a batch; of all
        iterates by which they are those of one step and node."""
        share = 1.0 if self.error.of in OF_THE_END else self.error.horizon * len(self.mixing)
        return 1 / (self.batch_size**2 * share)

    def problem(self, kind: Kind) -> Problem:
        """The problem of a kind of noise that has a horizon."""
        scheme = (BallsInBins if kind.drawn else FixedEpoch).from_records(**self.run)
        said = dict(kind.structure)
        space = SpaceStructure(kind=said.pop("space", "dense"))
        joint = said.pop("joint", "")
        in_time = TimeStructure(kind=said.pop("time", "dense"), **said)
        error = self.error
        common: dict[str, Any] = {
            "mixing": self.mixing if kind.weights is None else kind.weights,
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

    def endless_problem(self, kind: Kind) -> UnboundedProblem:
        """The problem of noise without a horizon, where it is for the error of the run."""
        if "of" in self.measure:
            expected, got = "that of all models after every step", f"'{self.measure['of']}'"
            raise InputError("error.of", expected=expected, got=got)
        return UnboundedProblem(
            mixing=self.mixing if kind.weights is None else kind.weights,
            nodes=self.nodes,
            max_participations=self.fixed.epochs,
            separation=self.fixed.separation,
            buffers=kind.structure["buffers"],
            privacy=self.target,
            name=self.name,
        )

    def tables(self, kind: Kind) -> dict[str, Any]:
        """The tables of its problem file, all but [graph]."""
        scheme, target, endless = self.fixed, self.target, kind.design == ENDLESS
        of_kind = BallsInBins if kind.drawn else FixedEpoch
        taken: dict[str, Any] = {"kind": of_kind.kind, **self.run}
        if endless:
            taken = {"kind": "min-separation", "max_participations": scheme.epochs}
            taken["separation"] = scheme.separation
        found: dict[str, Any] = {
            "name": self.name,
            "design": "time" if endless else kind.design,
            "participation": taken,
            "privacy": {key: getattr(target, key) for key in TARGET},
        }
        if kind.design in ("time", ENDLESS):
            found["workload"] = {"kind": "decentralized"}
            found["workload"] |= {"horizon": "unbounded"} if endless else {}
        if kind.structure:
            found["structure"] = dict(kind.structure)
        if kind.cap is not None:
            found["limits"] = {"max_variance": kind.cap}
        measure = {key: np.asarray(value).tolist() for key, value in self.measure.items()}
        if endless:  # learning rates, if any, are one number, a unit of the error
            measure = {}
        if kind.design == "space":
            measure["horizon"] = scheme.horizon
        return found | ({"error": measure} if measure else {})

    def code(self, kind: Kind) -> str:
        """Lines of Python that design and draw the noise of a kind, from a ``graph``, or W."""
        target = self.target
        solved = "nd.solve(problem).design"
        if kind.design == ENDLESS:
            solved = "nd.solve(problem)"
        elif kind.independent:
            solved = 'nd.baseline(problem, "ldp")'
        numbered = self.nodes == tuple(map(str, range(len(self.nodes))))
        node = 0 if numbered else self.nodes[0]
        drawn = f"nd.noise(design, node={node!r}, clip={target.clip!r}"
        drawn += ", seeds=seeds)" if kind.trust else ")"
        said = ", ".join(f"{key}={getattr(target, key)!r}" for key in TARGET)
        lines = ["import noisedesign as nd", *self.made.splitlines()]
        if self.weights == FASTEST and not kind.chosen:
            lines.insert(1, "from noisedesign.system.fastest_mixing import fastest_mixing")
        lines.append(f"target = nd.PrivacyTarget({said})")
        often = ", ".join(f"{key}={value}" for key, value in self.run.items())
        own = kind.chosen == OF_ITS_OWN  # W is not chosen under batches that are drawn
        if kind.design != ENDLESS and (own or not kind.drawn):
            lines.append(f"fixed = nd.participation.{FixedEpoch.__name__}.from_records({often})")
        if kind.drawn:
            lines.append(f"drawn = nd.participation.{BallsInBins.__name__}.from_records({often})")
        if own:
            lines.append(f"plain = {self._made(kind.plain, drawn=False)}")
            lines.append("mixing = nd.graphs.least_noise_mixing(plain).mixing")
        lines.append(f"problem = {self._made(kind, drawn=kind.drawn)}")
        if self.weights == FASTEST and self.nodes and kind.design != ENDLESS and not own:
            lines.append("mixing = fastest_mixing(graph).mixing")
        if lines[-1].startswith("mixing") or own:
            lines.append("problem = problem.with_mixing(mixing)")
        lines += [f"design = {solved}", *SEEDS[kind.trust], f"source = {drawn}"]
        if kind.drawn:
            lines.append("# In secret; no other batches keep this epsilon.")
            lines.append(f"batches = source.batches({self.records})")
        return "\n".join(map(broken, lines)) + "\n"

    def _made(self, kind: Kind, *, drawn: bool) -> str:
        """The expression of its problem, with batches that are drawn or in a fixed order."""
        scheme, often = self.fixed, "drawn" if drawn else "fixed"
        weights = LEAST_NOISE if kind.chosen == OF_ONE_STEP else self.weights
        ruled = weights is not None and weights != FASTEST
        chosen = [f"weights={weights!r}"] if ruled else []
        if self.weight != UNSAID:
            chosen.append(f"weight={self.weight!r}")
        if kind.design == ENDLESS:
            mixing = "graph"
            if weights == FASTEST:
                mixing = "fastest_mixing(graph).mixing"
            elif self.nodes:
                mixing = f"nd.mixing_matrix({', '.join(['graph', *chosen])})"
            named = "nodes=[str(node) for node in graph], " if self.nodes else ""
            return (
                f"nd.UnboundedProblem(mixing={mixing}, {named}"
                f"max_participations={scheme.epochs}, separation={scheme.separation}, "
                f"buffers={kind.structure['buffers']}, privacy=target)"
            )
        arguments = [f"participation={often}", "privacy=target"]
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
        classes = {"space": "SpaceProblem", "time": "TimeProblem", "space-time": "SpaceTimeProblem"}
        name = classes[kind.design]
        if not self.nodes:  # W itself was given
            name += ".decentralized" if kind.design == "time" else ""
            return f"nd.{name}({', '.join(['mixing=graph', *arguments])})"
        return f"nd.{name}.from_graph({', '.join(['graph', *arguments, *chosen])})"
