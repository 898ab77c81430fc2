"""Excess risk of ridge logistic regression by gossip averaging, beside the terms of Theorem 17.

Every node i has ``records`` features x of norm 1 and labels y in {-1, 1}, and f_i(theta) = mean of
log(1 + exp(-y x^T theta)) + ridge |theta|^2 / 2. One record moves a gradient by D = 1 / records at
most (the divisor stays). ``docs/experiments/gossip.md`` has data, step sizes and noise scales."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import expit

from noisedesign.base.checks import Array
from noisedesign.files.picture_file import new_figure
from noisedesign.files.picture_looks import looks_of
from noisedesign.privacy import views as threats
from noisedesign.privacy.accounting import mu_of
from noisedesign.privacy.sensitivity import squared_sensitivity
from noisedesign.system.participation import every_step
from noisedesign_lab.papers import bounds
from noisedesign_lab.papers.reproduce.experiment import Record, Rows, Unit
from noisedesign_lab.papers.reproduce.gossip.views import NAMES, drawn, graphs
from noisedesign_lab.papers.reproduce.pictures import log_ticks, points, side_by_side
from noisedesign_lab.papers.reproduce.statistics import (
    TOO_SHORT,
    columns_of,
    groups,
    interval,
    over_seeds,
)
from noisedesign_lab.tasks.training_task import columns

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = columns(
    "graph:str draw:int horizon:int step:str mechanism:str epsilon seed:int risk last_risk "
    "noise_stddev squared_sensitivity"
)
"""Columns of a row; ``noise_stddev`` is that of a node's noise a step, chosen by the
``squared_sensitivity`` for unit noise and gradients of norm at most 1."""

NONE, CENTRAL, OTHERS, VIEW, LDP, PAPER, THEOREM = (
    "no noise",
    "central",
    "others' views",
    "one view",
    "LDP",
    "equations (5.4), (5.5)",
    "Theorem 17, constants 1",
)

CONSTANT, TUNED = "constant", "tuned"
CALIBRATED = f"Noise against {OTHERS} and {VIEW} is for fixed responses, which no training keeps to"


def units(table: Any) -> Iterator[Unit]:
    """A graph and a horizon each."""
    keys = ("steps", "epsilons", "delta", "records", "dimension", "ridge", "spread", "seeds")
    for graph in graphs(table):
        for horizon in table.horizons:
            yield graph | {"horizon": horizon} | {key: getattr(table, key) for key in keys}


def run(unit: Unit) -> list[Record]:
    """Return the rows of one graph and horizon; those of the theorem have no seed."""
    w, horizon = drawn(unit), unit["horizon"]
    n, change = len(w), 1 / unit["records"]
    task = Task(unit, nodes=n)
    others, own = worst_pairs(w, horizon)
    squared = {OTHERS: others, VIEW: max(others, own), LDP: float(horizon)}
    lanes, central, theorem = [Lane(NONE, math.inf, 0.0, 0.0)], [], []
    known: dict[str, Any] = {
        "mixing": w,
        "horizon": horizon,
        "dimension": unit["dimension"],
        "delta": unit["delta"],
        "smoothness": task.smoothness,
        "strong_convexity": unit["ridge"],
        "heterogeneity_squared": task.heterogeneity_squared,
        "start_distance_squared": float((task.best**2).sum(axis=1).mean()),
    }
    for epsilon in unit["epsilons"]:
        per_unit = change / mu_of(epsilon=epsilon, delta=unit["delta"])
        lanes += [Lane(name, epsilon, per_unit * math.sqrt(s), s) for name, s in squared.items()]
        # A server is a network in which every model is the mean after every step.
        scaled = per_unit * math.sqrt(horizon / n)
        central.append(Lane(CENTRAL, epsilon, scaled, horizon / n))
        scale = bounds.theorem_17(epsilon=epsilon, **known)
        claimed, noise = scale.squared_sensitivity_as_claimed, change * scale.noise_stddev
        lanes.append(Lane(PAPER, epsilon, noise, claimed))
        total = change**2 * (scale.central + scale.mixing + scale.transient)
        total += scale.heterogeneity + scale.start
        theorem.append(Lane(THEOREM, epsilon, noise, claimed)._asdict() | {"risk": total})
    rows = []
    for step in unit["steps"]:
        found = [
            *_trained(task, w, step, lanes),
            *_trained(task, np.full((n, n), 1 / n), step, central),
            *theorem,
        ]
        where = {name: unit[name] for name in ("graph", "draw", "horizon")} | {"step": step}
        rows += [{"seed": None, "last_risk": None} | row | where for row in found]
    return rows


class Lane(NamedTuple):
    """Noise that a run is made with, as in the columns of those names."""

    mechanism: str
    epsilon: float
    noise_stddev: float
    squared_sensitivity: float


def _trained(task: Task, w: Array, step: str, lanes: Sequence[Lane]) -> Iterator[Record]:
    noise = np.array([lane.noise_stddev for lane in lanes])
    mean, last = task.excess_risk(w, noise, step=task.step_size(step))
    for place, lane in enumerate(lanes):
        for seed in range(len(mean)):
            risks = {"risk": float(mean[seed, place]), "last_risk": float(last[seed, place])}
            yield lane._asdict() | {"seed": seed} | risks


def worst_pairs(w: Array, horizon: int) -> tuple[float, float]:
    """Largest Delta_T(j -> i)^2, squared: over j other than i, and over j = i."""
    worst = {True: 0.0, False: 0.0}  # by whether the node is the one that is read
    for observer in range(len(w)):
        mechanism = threats.view(
            threats.dp_d_sgd(mixing=w, horizon=horizon), threats.tap(nodes=(observer,))
        )
        grams = {v: np.asarray(seen.gram) for v, seen in threats.grams(mechanism, range(len(w)))}
        most = {victim: float(np.abs(gram).sum()) for victim, gram in grams.items()}
        for victim in sorted(grams, key=lambda v: -most[v]):
            own = victim == observer
            if most[victim] > worst[own]:  # an upper bound, which rules most pairs out
                found = squared_sensitivity(grams[victim], every_step(horizon)).squared
                worst[own] = max(worst[own], found)
    return worst[False], worst[True]


class Task:
    """Data of all seeds and nodes, and what the theorem needs of them: L of every f_i, the
    minimisers ``best`` of f, shape (seeds, dimension), and the mean of |grad f_i|^2 there."""

    def __init__(self, unit: Unit, *, nodes: int) -> None:
        seeds, m, d = unit["seeds"], unit["records"], unit["dimension"]
        self.ridge: float = unit["ridge"]
        self.horizon: int = unit["horizon"]
        parts = [_data(seed, nodes, m, d, unit["spread"]) for seed in range(seeds)]
        self.features = np.stack([features for features, _ in parts])  # (S, n, m, d)
        self.labels = np.stack([labels for _, labels in parts])  # (S, n, m)
        squares = self.features.swapaxes(-1, -2) @ self.features / (4 * m)
        self.smoothness: float = self.ridge + float(np.linalg.eigvalsh(squares)[..., -1].max())
        self.best = np.stack([self._minimiser(seed) for seed in range(seeds)])
        here = np.broadcast_to(self.best[:, None, None], (seeds, nodes, 1, d))
        self.heterogeneity_squared = float((self.gradients(here) ** 2).sum(axis=-1).mean())

    def gradients(self, models: Array) -> Array:
        """Return the gradients of f_i at models of shape (S, n, E, d), in that shape."""
        margins = self.features @ models.swapaxes(-1, -2)  # (S, n, m, E)
        signs = self.labels[..., None]
        slopes = -signs * expit(-signs * margins) / self.features.shape[2]
        found: Array = slopes.swapaxes(-1, -2) @ self.features + self.ridge * models
        return found

    def values(self, models: Array) -> Array:
        """Return f at models of shape (S, E, d), in shape (S, E)."""
        s, n, m, d = self.features.shape
        margins = self.features.reshape(s, n * m, d) @ models.swapaxes(-1, -2)
        margins *= self.labels.reshape(s, n * m, 1)
        losses = np.log1p(np.exp(-np.abs(margins))) - np.minimum(margins, 0)  # log(1 + exp(-m))
        found: Array = losses.mean(axis=1) + self.ridge / 2 * (models**2).sum(axis=-1)
        return found

    def _minimiser(self, seed: int) -> Array:
        x, y = self.features[seed].reshape(-1, self.features.shape[-1]), self.labels[seed].ravel()
        theta = np.zeros(x.shape[1])
        for _ in range(50):
            odds = expit(-y * (x @ theta))
            gradient = -(odds * y) @ x / len(y) + self.ridge * theta
            hessian = (x * (odds * (1 - odds))[:, None]).T @ x / len(y)
            theta = theta - np.linalg.solve(hessian + self.ridge * np.eye(len(theta)), gradient)
        return theta

    def step_size(self, rule: str) -> float:
        """The step size that ``CONSTANT`` or ``TUNED`` names."""
        tuned = math.log(max(2, self.horizon)) / (self.ridge * self.horizon)
        largest: float = 1 / self.smoothness
        return largest if rule == CONSTANT else min(largest, tuned)

    def excess_risk(self, w: Array, noise: Array, *, step: float) -> tuple[Array, Array]:
        """Return the excess risk of the mean model, mean over t < T and that at T, (S, E) each."""
        s, n, _, d = self.features.shape
        models = np.zeros((s, n, len(noise), d))
        rngs = [np.random.default_rng((seed, 1)) for seed in range(s)]
        least = self.values(self.best[:, None])
        total = np.zeros((s, len(noise)))
        for _ in range(self.horizon):
            total += self.values(models.mean(axis=1)) - least
            unit = np.stack([rng.standard_normal((n, d)) for rng in rngs])
            noisy = self.gradients(models) + unit[:, :, None] * noise[:, None]
            models = models - step * noisy
            models = (w @ models.reshape(s, n, -1)).reshape(models.shape)
        return total / self.horizon, self.values(models.mean(axis=1)) - least


def _data(
    seed: int, nodes: int, records: int, dimension: int, spread: float
) -> tuple[Array, Array]:
    """Features of norm 1, shape (n, m, d), and labels, shape (n, m), of one seed."""
    rng = np.random.default_rng((seed, 0))
    features = rng.standard_normal((nodes, records, dimension))
    features /= np.linalg.norm(features, axis=-1, keepdims=True)
    common = rng.standard_normal(dimension)
    models = 3.0 * (common + spread * rng.standard_normal((nodes, dimension)))
    odds = expit((features @ models[..., None])[..., 0])
    return features, np.where(rng.random((nodes, records)) < odds, 1.0, -1.0)


# --- summary, picture and words -------------------------------------------------------------------


def summary(rows: Rows) -> list[Record]:
    """Summarise each graph, horizon, step size, noise scale and epsilon by its excess risk."""
    told = [
        row
        | {"setting": f"{_place(row)}, T = {row['horizon']}"}
        | {"test_loss": row["risk"], "accuracy": None}
        for row in rows
    ]
    last: dict[Any, list[float | None]] = {}
    for row in told:
        key = row["setting"], row["mechanism"], row["epsilon"]
        last.setdefault(key, []).append(row["last_risk"])
    others = ("horizon", "noise_stddev", "squared_sensitivity")
    return [
        row
        | columns_of("last_risk", last[row["setting"], row["mechanism"], row["epsilon"]])
        | ({"seeds": 0} if row["mechanism"] == THEOREM else {})
        for row in over_seeds(told, *others)
    ]


def growth(rows: Rows) -> list[Record]:
    """Return the ``factor`` of the last risk from one horizon to the next, and from the first to
    the last, with its t interval."""
    found = []
    noisy = [row for row in rows if row["last_risk"] is not None and row["noise_stddev"]]
    for (_, _, mechanism, epsilon), members in groups(
        [row | {"place": _place(row)} for row in noisy], "graph", "place", "mechanism", "epsilon"
    ):
        risks = {(row["horizon"], row["seed"]): row["last_risk"] for row in members}
        horizons, seeds = (sorted({key[k] for key in risks}) for k in (0, 1))
        for short, long in dict.fromkeys([*pairwise(horizons), (horizons[0], horizons[-1])]):
            logs = [math.log(risks[long, seed] / risks[short, seed]) for seed in seeds]
            told = {"place": members[0]["place"], "mechanism": mechanism, "epsilon": epsilon}
            ends = ("factor", "low", "high")
            factors = (None if x is None else math.exp(x) for x in interval(logs))
            found.append(told | {"from": short, "to": long} | dict(zip(ends, factors, strict=True)))
    return found


def _place(row: Mapping[str, Any]) -> str:
    graph = NAMES[row["graph"]] + (f" {row['draw']}" if row["draw"] else "")
    return f"{graph}, {row['step']} step"


def by_horizon(found: Rows, *, epsilon: float) -> Figure:
    """Excess risk after T steps against T, at one epsilon; the theorem's terms beside it."""
    from matplotlib.lines import Line2D

    shown = [row for row in found if row["epsilon"] in (epsilon, math.inf)]
    looks = looks_of(row["mechanism"] for row in shown)
    places = list(groups([row | {"place": _without_horizon(row)} for row in shown], "place"))
    moved = side_by_side(list(looks), [row["horizon"] for row in shown])
    figure = new_figure(4.0 * len(places) / 2 + 0.6, 6.6)
    panels = figure.subplots(2, math.ceil(len(places) / 2), squeeze=False, sharey=True)
    for axes, ((place,), members) in zip(panels.T.flat, places, strict=False):
        for (mechanism,), of_one in groups(members, "mechanism"):
            column = "test_loss" if mechanism == THEOREM else "last_risk"
            steps = [row | {"epsilon": row["horizon"]} for row in of_one]
            points(axes, steps, column, looks[mechanism], moved.get(mechanism))
        axes.set_title(place)
        log_ticks(axes, (row["horizon"] for row in shown))
        axes.set_yscale("log")
        axes.set_xlabel("steps T")
        axes.set_ylabel("excess risk after T steps")
    handles = [Line2D([], [], label=name, **look) for name, look in looks.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    figure.suptitle(CALIBRATED)
    return figure


def _without_horizon(row: Record) -> str:
    return str(row["setting"]).rpartition(", T = ")[0]


def paragraph(found: Rows, grown: Rows, table: Any) -> str:
    """Tell the measured risk beside what the theorem says."""
    at = {(row["setting"], row["mechanism"], row["epsilon"]): row for row in found}
    epsilon, (short, long) = max(table.epsilons), (min(table.horizons), max(table.horizons))
    head = (
        f"**Theorem 17.** Ridge logistic regression of {table.nodes} nodes with {table.records} "
        f"records each, d = {table.dimension}, {table.seeds} seeds, epsilon = {epsilon:g}, delta = "
        f"{table.delta:g}; excess risk in the mean over the run, and after the last step, with 95 "
        f"% Student t intervals over seeds. {CALIBRATED}."
    )
    factors = {
        (row["place"], row["mechanism"]): row
        for row in grown
        if (row["epsilon"], row["from"], row["to"]) == (epsilon, short, long)
    }
    places = dict.fromkeys(_without_horizon(row) for row in found)
    told = (_told(at, factors, place, epsilon, short, long) for place in places)
    return "\n".join([head, "", *told])


def _told(
    at: Mapping[tuple[str, str, float], Record],
    factors: Mapping[tuple[str, str], Record],
    place: str,
    epsilon: float,
    short: int,
    long: int,
) -> str:
    def of(mechanism: str, horizon: int = long) -> Record:
        return at[f"{place}, T = {horizon}", mechanism, epsilon]

    risks = "; ".join(
        f"{name} {shown(of(name), 'test_loss')}, at last {shown(of(name), 'last_risk')}"
        for name in (CENTRAL, OTHERS, VIEW, LDP, PAPER)
    )
    claimed, exact, all_messages = (of(name)["squared_sensitivity"] for name in (PAPER, VIEW, LDP))
    remark = "which lies between these two"
    if claimed > all_messages:
        remark = "more than either"
    elif claimed < exact:
        remark = "which is no upper bound"
    terms = of(THEOREM)["test_loss"], of(THEOREM, short)["test_loss"]
    told = (
        f"- {place}, T = {long}: {risks}; the theorem's terms with constants 1 are {terms[0]:.3g}. "
        f"The squared sensitivity is {exact:.4g} for one view, its own node included, "
        f"{of(OTHERS)['squared_sensitivity']:.4g} for other nodes, {all_messages:g} for all "
        f"messages; equation (5.4) says {claimed:.3g}, {remark}."
    )
    if short == long:
        return told
    growing = ", ".join(
        f"{name} {shown(factors[place, name], 'factor')}{_unsure(factors[place, name])}"
        for name in (CENTRAL, OTHERS, VIEW, LDP)
    )
    return (
        f"{told} From T = {short} on, the risk after the last step is multiplied by {growing}; the "
        f"theorem's terms by {terms[0] / terms[1]:.2g}, log(T) by "
        f"{math.log(long) / math.log(short):.3g}."
    )


def _unsure(factor: Record) -> str:
    crosses = factor["low"] is None or factor["low"] <= 1 <= factor["high"]
    return f", {TOO_SHORT}" if crosses else ""


def shown(row: Record, name: str) -> str:
    """ "0.12 (0.11 to 0.13)", of a column and those of its interval."""
    low, high = (row[end] if name == "factor" else row[f"{name}_{end}"] for end in ("low", "high"))
    if low is None:
        return "diverged"
    return f"{row[name]:.3g} ({low:.3g} to {high:.3g})"
