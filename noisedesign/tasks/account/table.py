"""One algorithm under every threat model: what each kind of observer learns of its worst victim."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.base.nodes import Row
from noisedesign.base.shown import Listing, Shown
from noisedesign.design.design import Design
from noisedesign.mechanisms import algorithms as catalogue
from noisedesign.privacy import views as threats
from noisedesign.privacy.exposure import Exposure, account
from noisedesign.privacy.runs import ANY, Responses, responses_of
from noisedesign.privacy.target import DEFAULT_ADJACENCY, DEFAULT_DELTA
from noisedesign.privacy.views import Algorithm, Observer
from noisedesign.privacy.views.noise import MessageNoise
from noisedesign.problem.calibration import calibration_of
from noisedesign.system.participation import Participation, every_step

TIE = 1e-9  # relative difference of losses that are one: symmetric nodes differ by rounding


@dataclass(frozen=True, kw_only=True)
class ModelRow:
    """The row of one kind of observer and the node it learns most about: words, and the values of
    an :class:`noisedesign.privacy.exposure.Exposure`, None where there is no number."""

    model: str
    observer: str
    victim: str | None = None
    distance: int | None = None
    sensitivity_squared: float | None = None
    which: str | None = None
    mu: float | None = None
    epsilon: float | None = None
    confidence: float | None = None
    epsilon_estimate: float | None = None
    responses: str | None = None
    theorem: int | None = None
    lower_bound: float | None = None
    gap: float | None = None
    note: str = ""
    delta: float
    adjacency: str
    random: bool = False

    @property
    def loss(self) -> float | None:
        """The number that rows are compared by: epsilon where steps are random, else mu."""
        return self.epsilon if self.random else self.mu


_SETTING = {"model", "observer", "victim", "note", "delta", "adjacency", "random"}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Setting(Shown):
    """An algorithm as it is run, in the words of :func:`noisedesign.account`; ``graph`` is False
    where a design is for one model, so that nobody is its neighbour."""

    algorithm: Algorithm
    participation: Participation
    noise_multiplier: Any = 1.0
    adjacency: str = DEFAULT_ADJACENCY
    delta: float | None = DEFAULT_DELTA
    responses: Responses = ANY
    graph: bool = field(default=True, repr=False)

    def before(self, observer: Observer, **how: Any) -> Listing[Exposure]:
        """Run :func:`noisedesign.account` for one observer."""
        names = ("participation", "delta", "noise_multiplier", "adjacency", "responses")
        how |= {name: getattr(self, name) for name in names}
        return account(self.algorithm, observer, **how)


def setting_of(
    design: Design,
    *,
    steps: int | None = None,
    delta: float | None = None,
    adjacency: str | None = None,
    responses: str | Responses = "any",
) -> Setting:
    """A design as it would be run: scaled to its privacy target, else as it is."""
    # ``steps`` is for spatial designs without a horizon: a record takes part in every one of them.
    problem, calibration = design.problem, calibration_of(design.problem)
    participation = calibration.participation
    if participation is None and steps is None:
        expected = "how many steps the noise of this spatial design is used for"
        remedy = "Say --steps T (steps=T), or design for a [participation]."
        raise InputError("steps", expected=expected, got="nothing", remedy=remedy)
    if participation is not None and steps is not None:
        expected = f"none for a design that is for {participation}"
        raise InputError("steps", expected=expected, got=str(steps))
    participation = participation or every_step(_checks.positive_int(steps, field="steps"))
    graph = problem.mixing is not None
    algorithm = catalogue.of_design(
        design,
        participation=participation,
        mixing=None if graph else np.ones((1, 1)),
        nodes=() if graph else ("every node",),
    )
    return Setting(
        algorithm=algorithm,
        participation=participation,
        noise_multiplier=calibration.noise_multiplier,
        responses=responses_of(responses),
        graph=graph,
        adjacency=adjacency or calibration.adjacency or DEFAULT_ADJACENCY,
        delta=next(d for d in (delta, calibration.delta, DEFAULT_DELTA) if d is not None),
    )


def busiest_node(mixing: Array, *, but: Sequence[int] = ()) -> int:
    """The node with the most neighbours, the first of them: it sees most; none of ``but``, unless
    these are all."""
    linked = (mixing != 0) | (mixing.T != 0)
    np.fill_diagonal(linked, False)
    count = linked.sum(axis=0)
    if len(set(but)) < len(count):
        count[list(but)] = -1
    return Row(count.argmax())


def every_model(
    setting: Setting,
    *,
    node: int,
    victims: Sequence[int] = (),
    bounded: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> list[ModelRow]:
    """A row a threat model, for the node that looks wherever a node does, about one of ``victims``,
    by default of all others."""
    # Where ``bounded``, observers of a part get the number of a reader of all who knows the same.
    algorithm, noise = setting.algorithm, setting.algorithm.noise
    observers = list(_observers(node, alone=len(algorithm.mixing) == 1))
    rows = []
    common: Any = {"delta": setting.delta, "adjacency": setting.adjacency}
    common["random"] = setting.participation.random
    for done, (model, observer) in enumerate(observers, start=1):
        row = ModelRow(model=model, observer=observer_words(observer, algorithm.nodes), **common)
        part = bounded and observer.sees not in ("all", "mean")
        try:
            asked = replace(observer, sees="all") if part else observer
            found = setting.before(asked, worst=True, victims=victims or None)
            most = max(exposure.loss for exposure in found)
            worst = next(exposure for exposure in found if exposure.loss >= most * (1 - TIE))
            shared = (name for name in ModelRow.__dataclass_fields__ if name not in _SETTING)
            known = {name: getattr(worst, name) for name in shared}
            remarks = [worst.words]
            seeds = getattr(noise, "seeds", None) is not None or isinstance(noise, MessageNoise)
            if model == "secldp" and not seeds:
                told = "dealt noise has no seeds: the node knows the values it is dealt, as an "
                remarks.append(f"{told}insider")
            if part:
                told = "at most this: the number of a reader of all messages who knows the same"
                remarks.append(told)
            note = "; ".join(filter(None, remarks))
            rows.append(replace(row, victim=worst.node, note=note, **known))
        except InputError as error:
            # The field of the error about more observations than can be factored.
            if error.field != "participation" or setting.participation.horizon != algorithm.horizon:
                raise
            rows.append(replace(row, note=f"no number: {error}"))
        if progress is not None:
            progress(done, len(observers))
    return rows


def _observers(node: int, *, alone: bool) -> Iterator[tuple[str, Observer]]:
    yield "ldp", threats.ldp()
    yield "central", threats.central()
    if not alone:
        yield "pndp", threats.pndp(nodes=(node,))
        yield "pndp-counted", threats.pndp(nodes=(node,), own_noise="counted")
        yield "secure-sum", threats.secure_sum(nodes=(node,))
        yield "insider", threats.insider(nodes=(node,))
        yield "secldp", threats.secldp(nodes=(node,))
    yield "shared-seed", threats.shared_seed(nodes=() if alone else (node,))


def observer_words(observer: Observer, nodes: Sequence[str]) -> str:
    """Who looks, what is seen and what is known of the noise, with the names of the nodes."""
    who = "outsider" if observer.sees == "mean" else "eavesdropper"
    if observer.coalition:
        several = len(observer.coalition) > 1
        who = f"{'nodes' if several else 'node'} {_named(observer.coalition, nodes)}"
    seen = {
        "sent": f"messages sent by {_named(observer.listened, nodes)}",
        "received": "received messages",
        "sums": "weighted sums of received messages",
        "mean": "mean of the models",
        "all": "all messages",
    }
    knows = observer.knows
    known = ["own seeds"] if knows.holders else []
    known += ["values of own noise"] if knows.values else []
    known += [f"seed of {_named(sorted(seed), nodes)}" for seed in sorted(knows.seeds, key=sorted)]
    if knows.everything:
        known = ["all noise"]
    unknown = "own noise counted as unknown" if observer.coalition else "no noise"
    return f"{who}: {', '.join([seen[observer.sees], *(known or [unknown])])}"


def _named(rows: Sequence[int], nodes: Sequence[str]) -> str:
    """Say "A", "A and B", "A, B, C, D and 3 more"."""
    names = [nodes[row] for row in rows[:4]]
    if len(rows) > 4:
        names.append(f"{len(rows) - 4} more")
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
