"""The loss of the model that is kept: noise that is designed for it, steps tuned for everyone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from noisedesign.base.checks import Array
from noisedesign.design.solve import solve
from noisedesign.files.picture_file import new_figure
from noisedesign.files.schema import Table, Text
from noisedesign.problem.problem import TimeProblem
from noisedesign.system.datasets import ego_facebook
from noisedesign.system.graph import build_graph, mixing_matrix
from noisedesign.system.participation import FixedEpoch
from noisedesign.system.workloads import ErrorMeasure
from noisedesign_lab.datasets import Examples, a9a, california_housing
from noisedesign_lab.papers.reproduce import keys
from noisedesign_lab.papers.reproduce.experiment import Experiment, Record, Rows, Settings, Unit
from noisedesign_lab.papers.reproduce.ours import label
from noisedesign_lab.papers.reproduce.pictures import Pictures, styles
from noisedesign_lab.papers.reproduce.statistics import costs_of_noise, groups, interval, over_seeds
from noisedesign_lab.tasks.mechanisms import Mechanism, Network, mechanism, of_design
from noisedesign_lab.tasks.training_task import columns
from noisedesign_lab.training.gossip import FixedGossip
from noisedesign_lab.training.losses.loss import Loss
from noisedesign_lab.training.losses.models import LeastSquares, Logistic
from noisedesign_lab.training.optimizers import AdamW, Momentum, Optimizer
from noisedesign_lab.training.partition import Standardization, iid, split
from noisedesign_lab.training.seeding import Use, generator
from noisedesign_lab.training.trainer import Lane, Run, train

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NONE, LDP, MAFALDA = "none", "ldp", "mafalda"
COLUMNS = columns(
    "setting:str mechanism:str optimizer:str mu epsilon step_size seed:int test_loss error"
)
"""Columns of a row: a mechanism at its best step size, one seed; ``error`` is the objective of its
design, in its own units; ``epsilon`` is mu (not squared), the name that tables share."""

TUNING = 1_000_000  # first seed of runs that step sizes are chosen by, far from all others
GAP = 1e-3  # relative, of designs: losses differ by more from seed to seed


class Data(NamedTuple):
    """Records to train and test on, with their loss."""

    train: Examples
    test: Examples
    loss: Loss


@cache
def data_of(name: str) -> Data:
    """Return records whose features, with the constant, have norms of 1 at most."""
    if name == "a9a":
        train, test = map(_unit_rows, a9a())
        return Data(train, test, Logistic(features=train.features.shape[1]))
    houses = california_housing()
    features = houses.features.copy()
    features[:, 2:6] = np.log1p(np.maximum(features[:, 2:6], 0.0))
    houses = Examples(features=features, targets=houses.targets)
    parts = split(len(houses), {"train": 0.8, "test": 0.2}, generator(0, Use.EXAMPLES, 2))
    fitted = Standardization.of(houses.at(parts["train"]))
    targets = houses.at(parts["train"]).targets
    both = []
    for part in ("train", "test"):
        found = fitted.applied(houses.at(parts[part]))
        scaled = (found.targets - targets.mean()) / targets.std()
        both.append(_unit_rows(Examples(features=found.features, targets=scaled)))
    return Data(*both, LeastSquares(features=both[0].features.shape[1]))


WIDTH = 3.0  # norm of standardised features, with their constant, above which they are clipped


def _unit_rows(found: Examples) -> Examples:
    with_ones = np.concatenate([found.features, np.ones((len(found), 1))], axis=1)
    norms = np.maximum(np.linalg.norm(with_ones, axis=1, keepdims=True), WIDTH)
    return Examples(features=with_ones / norms, targets=found.targets)


def units(settings: LossSettings) -> list[Unit]:
    """List a graph, a data set, a budget and an optimizer each."""
    table = settings.training
    shared = table.model_dump(exclude={"graphs", "data", "mus"})
    return [
        {"graph": graph, "mu": mu, "optimizer": "sgd", **one, **shared}
        for graph in table.graphs
        for one in (data.model_dump() for data in table.data)
        for mu in table.mus
    ] + [
        {"graph": table.graphs[0], "mu": mu, "optimizer": optimizer, **one, **shared}
        for optimizer in settings.optimizers.names
        for one in (data.model_dump() for data in table.data[: settings.optimizers.data])
        for mu in table.mus[:1]
    ]


def run(unit: Unit) -> list[Record]:
    """Return rows of all mechanisms, each at the step size that was best for it on other seeds."""
    data, w = data_of(unit["name"]), _mixing(tuple(unit["graph"].items()))
    rates = unit["adaptive_step_sizes" if unit["optimizer"] == "adamw" else "step_sizes"]
    batches = len(data.train) // len(w) // unit["batch_size"]
    scheme = FixedEpoch(epochs=math.ceil(unit["steps"] / batches), separation=batches)
    settled = Run(
        loss=data.loss,
        examples=data.train,
        test=data.test,
        measured=unit["measured"],
        partition=iid(len(data.train), len(w)),
        gossip=FixedGossip(mixing=w),
        rule=scheme.rule,
        horizon=scheme.horizon,
        clip=unit["clip"],
        optimizer=OPTIMIZERS[unit["optimizer"]],
    )
    # Noise is designed for the learning rate of plain steps, whatever is made of it afterwards.
    curvature = tuple(unit["curvature"])
    graph, plain = tuple(unit["graph"].items()), unit["optimizer"] == "sgd"
    made = {
        (name, falling, rate): _made(
            name, graph, scheme, rate if plain else 1 / max(curvature), falling, curvature
        )
        for name in unit["mechanisms"]
        for falling in (False, True)
        for rate in rates
    }
    lanes = {
        key: Lane(
            source=one.source,
            stddev=_stddev(one, unit),
            step_sizes=key[2] * steps_of(scheme.horizon, falling=key[1]),
        )
        for key, one in made.items()
    }
    first = range(TUNING, TUNING + unit["tuning_seeds"])
    tuned = _losses(settled, lanes, first)
    mean = {key: float(np.mean(losses)) for key, losses in tuned.items()}
    best = {
        group: min((key for key in mean if key[:2] == group), key=mean.__getitem__)
        for group in dict.fromkeys(key[:2] for key in mean)
    }
    found = _losses(settled, {key: lanes[key] for key in best.values()}, range(unit["seeds"]))
    setting = f"{label(unit['graph'])}, {unit['name']}"
    setting += "" if unit["optimizer"] == "sgd" else f", {unit['optimizer']}"
    rows = []
    for (name, falling), key in best.items():
        design = made[key].design
        shared = {
            "setting": setting,
            "mechanism": name + FALLING * falling,
            "optimizer": unit["optimizer"],
            "mu": unit["mu"],
            "epsilon": unit["mu"],
            "step_size": key[2],
            "error": None if design is None else design.objective,
        }
        rows += [shared | {"seed": k, "test_loss": loss} for k, loss in enumerate(found[key])]
    return rows


FALLING = ", falling"  # what is added to a mechanism's name where its step falls to zero


def steps_of(horizon: int, *, falling: bool) -> Array:
    """Step sizes over the first one: all alike, or falling linearly to 1 / T of it."""
    return 1 - np.arange(horizon) / horizon if falling else np.ones(horizon)


OPTIMIZERS: dict[str, Optimizer | None] = {
    "sgd": None,
    "momentum": Momentum(beta=0.9),
    "adamw": AdamW(),
}
TOGETHER = 2**22  # numbers of models that are run side by side: 32 MB


def _losses(settled: Run, lanes: Mapping[Any, Lane], seeds: range) -> dict[Any, list[float]]:
    """Losses of the nodes' last models, a list of seeds for each lane; infinite if it diverged."""
    found: dict[Any, list[float]] = {key: [] for key in lanes}
    width = settled.nodes * settled.loss.dimension
    count = max(1, TOGETHER // width)
    items = list(lanes.items())
    for seed in seeds:
        for start in range(0, len(items), count):
            part = items[start : start + count]
            (end,) = train(settled, [lane for _, lane in part], seeds=[seed])
            losses = np.asarray(end.test_loss)[0]
            for (key, _), loss in zip(part, losses, strict=True):
                found[key].append(float(loss) if np.isfinite(loss) else math.inf)
    return found


def _stddev(one: Mechanism, unit: Unit) -> float:
    """Standard deviation of noise in a sum of clipped gradients that gives mu, records replaced."""
    if one.source is None:
        return 0.0
    return float(unit["clip"] * one.mu(noise_multiplier=1.0, adjacency="replace") / unit["mu"])


@cache
def _made(
    name: str,
    graph: tuple[tuple[str, Any], ...],
    scheme: FixedEpoch,
    rate: float,
    falling: bool,
    curvature: tuple[float, ...],
) -> Mechanism:
    if name in (NONE, LDP, MAFALDA):
        return _catalogued(name, graph, scheme)
    w, how = _mixing(graph), {"horizon": scheme.horizon}
    rates = np.minimum(rate * steps_of(scheme.horizon, falling=falling), 1 / max(curvature))
    error = ErrorMeasure(of="last-iterate", learning_rates=rates, **how)
    if name != "last-iterate":
        error = ErrorMeasure(of="loss", curvature=np.array(curvature), learning_rates=rates, **how)
    problem = TimeProblem.decentralized(
        mixing=w,
        participation=scheme,
        error=error,
        max_variance=CAP * scheme.epochs if name == "loss-capped" else None,
    )
    found = solve(problem, gap=GAP).design
    assert found is not None
    return of_design(found, name=name)


CAP = 4.0  # largest variance (squared) over that of independent noise, of "loss-capped"


@cache
def _catalogued(name: str, graph: tuple[tuple[str, Any], ...], scheme: FixedEpoch) -> Mechanism:
    return mechanism(name, Network(mixing=_mixing(graph), participation=scheme))


@cache
def _mixing(graph: tuple[tuple[str, Any], ...]) -> Array:
    kind, *rest = dict(graph).items()
    if kind[1] == "ego-facebook":
        return mixing_matrix(ego_facebook(**dict(rest)))
    return mixing_matrix(build_graph(**dict(graph)))


class DataTable(Table):
    """One data set; ``curvature`` is a guess, of a range of eigenvalues of its loss's Hessian."""

    name: Literal["a9a", "california-housing"]
    curvature: keys.Positives
    step_sizes: keys.Positives
    adaptive_step_sizes: keys.Positives
    batch_size: keys.Count


class TrainingTable(Table):
    """``steps`` are at least so many, in whole epochs of fixed batches."""

    graphs: keys.Graphs
    data: Annotated[list[DataTable], Field(min_length=1)]
    mechanisms: keys.Names
    mus: keys.Positives
    steps: keys.Count
    clip: keys.Positive
    measured: keys.Count
    tuning_seeds: keys.Count
    seeds: keys.Count


class OptimizersTable(Table):
    """Other rules of steps, on the first graph, the first ``data`` data sets and the first mu."""

    names: list[Text]
    data: keys.Count


class LossSettings(Settings):
    """Keys of ``problems/papers/loss.toml``."""

    training: TrainingTable
    optimizers: OptimizersTable


def summary(rows: Rows, settings: LossSettings) -> list[Record]:
    """Losses of the nodes' models after the last step, each mechanism at its best step size."""
    return over_seeds([row | {"accuracy": None} for row in rows], "mu", "step_size", "error")


def costs(rows: Rows) -> list[Record]:
    """Return what noise costs, loss less that without noise at a constant step, and over others."""
    found = []
    for (setting, mu), members in groups(rows, "setting", "mu"):
        spent = {
            name: interval(costs_of_noise(members, name))
            for name in dict.fromkeys(row["mechanism"] for row in members)
        }
        steps = {row["mechanism"]: row["step_size"] for row in members}
        for name, cost in spent.items():
            if name != NONE:
                lane = {"setting": setting, "mechanism": name, "mu": mu, "step_size": steps[name]}
                over = {f"over_{other}": cost.mean / spent[other].mean for other in (LDP, MAFALDA)}
                found.append(lane | cost.columns("cost") | over)
    return found


def tables(rows: Rows, settings: LossSettings) -> Mapping[str, Rows]:
    """What noise costs."""
    return {"costs.csv": costs(rows)}


def pictures(rows: Rows, found: Rows, settings: LossSettings) -> Pictures:
    """What noise costs, a panel a budget."""
    return {"costs": draw(costs(rows))}


def draw(table: Sequence[Record]) -> Figure:
    """A panel a budget: settings down, the cost of noise across; hollow where the step falls."""
    panels = list(groups(table, "mu"))
    named = [(row["mechanism"].removesuffix(FALLING), row) for row in table]
    looks = styles(name for name, _ in named if name != NONE)
    count = max(len({row["setting"] for row in rows}) for _, rows in panels)
    figure = new_figure(4.6 * len(panels) + 2.0, 0.55 * count + 1.8)
    axes = np.atleast_1d(figure.subplots(1, len(panels)))
    for place, ((mu,), members) in zip(axes, panels, strict=True):
        settings = list(dict.fromkeys(row["setting"] for row in members))
        for lane, (name, look) in enumerate(looks.items()):
            for falling in (False, True):
                asked = name + FALLING * falling
                shown = [row for row in members if row["mechanism"] == asked]
                shown = [row for row in shown if row["cost_low"] is not None]
                at = [
                    settings.index(row["setting"]) + 0.13 * (lane - len(looks) / 2 + 0.5)
                    for row in shown
                ]
                ends = [
                    [r["cost"] - r["cost_low"] for r in shown],
                    [r["cost_high"] - r["cost"] for r in shown],
                ]
                place.errorbar(
                    [row["cost"] for row in shown],
                    at,
                    xerr=ends,
                    label=asked,
                    linestyle="",
                    markersize=4,
                    color=look["color"],
                    marker=look["marker"],
                    markerfacecolor="white" if falling else look["color"],
                )
        place.set_yticks(range(len(settings)), settings, fontsize=8)
        place.invert_yaxis()
        place.axvline(0, color="0.8", linewidth=0.8, zorder=0)
        place.set_title(f"mu = {mu:g}", fontsize=10)
        place.set_xlabel("test loss less that without noise")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=8)
    return figure


def paragraph(rows: Rows, found: Rows, settings: LossSettings) -> str:
    """Say what the best design costs over Mafalda's and over independent noise."""
    table = settings.training
    told = [
        f"Test loss of the nodes' models after the last step, less that without noise, mean of "
        f"{table.seeds} seeds; every mechanism, and none, has the step size that was best for it "
        f"on {table.tuning_seeds} other seeds. Records are replaced, clip {table.clip:g}, "
        f"at least {table.steps} steps; budgets are before a reader of all "
        "messages, whatever gradients answer to. In brackets, over what Mafalda's noise costs, and "
        "over independent noise, both at constant steps; falling: the step falls to zero."
    ]
    for (setting, mu), members in groups(costs(rows), "setting", "mu"):
        parts = [
            f"{row['mechanism']} {row['cost']:.4f} ({row['over_mafalda']:.2f}, "
            f"{row['over_ldp']:.2f})"
            for row in members
        ]
        told.append(f"{setting}, mu {mu:g}: {'; '.join(parts)}.")
    return "\n\n".join(told)


EXPERIMENT = Experiment(
    title="The loss of the model that is kept, with steps tuned for every mechanism",
    settings=LossSettings,
    columns=COLUMNS,
    units=units,
    run=run,
    summary=summary,
    tables=tables,
    pictures=pictures,
    paragraph=paragraph,
)
