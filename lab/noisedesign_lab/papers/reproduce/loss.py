"""The loss of the model that is kept: noise and W designed for it, the step tuned for everyone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from noisedesign.base.checks import Array
from noisedesign.design.solve import solve
from noisedesign.files.picture_file import new_figure
from noisedesign.files.picture_looks import looks_of
from noisedesign.files.schema import Table, Text
from noisedesign.forms.structure import SpaceStructure
from noisedesign.problem.problem import SpaceTimeProblem, TimeProblem
from noisedesign.system.datasets import ego_facebook
from noisedesign.system.graph import build_graph, mixing_matrix
from noisedesign.system.participation import FixedEpoch
from noisedesign.system.workloads import ErrorMeasure, ErrorMixture
from noisedesign_lab.datasets import Examples, a9a, california_housing
from noisedesign_lab.papers.reproduce import keys
from noisedesign_lab.papers.reproduce.experiment import Experiment, Record, Rows, Settings, Unit
from noisedesign_lab.papers.reproduce.ours import label
from noisedesign_lab.papers.reproduce.pictures import Pictures
from noisedesign_lab.papers.reproduce.statistics import (
    NOISELESS,
    costs_of_noise,
    groups,
    interval,
    over_seeds,
)
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
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NONE, LDP, MAFALDA = NOISELESS, "ldp", "mafalda"
COLUMNS = columns(
    "setting:str variant:str mechanism:str mu epsilon step_size seed:int test_loss error"
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
    train, test = both
    return Data(train, test, LeastSquares(features=train.features.shape[1]))


WIDTH = 3.0  # norm of standardised features, with their constant, above which they are clipped


def _unit_rows(found: Examples) -> Examples:
    with_ones = np.concatenate([found.features, np.ones((len(found), 1))], axis=1)
    norms = np.maximum(np.linalg.norm(with_ones, axis=1, keepdims=True), WIDTH)
    return Examples(features=with_ones / norms, targets=found.targets)


def units(settings: LossSettings) -> list[Unit]:
    """List a graph, a data set and a budget each, and those of every variant."""
    shared = settings.training.model_dump(exclude={"graphs", "data", "mus"})
    found = []
    for run_as, graphs, mus, named in _runs(settings):
        sizes = ADAPTIVE if run_as["optimizer"] == "adamw" else "step_sizes"
        for graph, data in itertools.product(graphs, settings.training.data):
            if named is None or data.name in named:
                of_data = data.model_dump(exclude={ADAPTIVE}) | {"step_sizes": getattr(data, sizes)}
                found += [shared | of_data | run_as | {"graph": graph, "mu": mu} for mu in mus]
    return found


ADAPTIVE = "adaptive_step_sizes"


def _runs(settings: LossSettings) -> Iterator[tuple[Unit, keys.Graphs, list[float], Any]]:
    """Yield what all units of a run have, its graphs, budgets and names of data sets, or None."""
    table = settings.training
    plain = {"label": "", "optimizer": "sgd", "whose": "nodes"}
    yield plain, table.graphs, table.mus, None
    for one in settings.variants:
        own = {"graphs", "mus", "data"}
        yield one.model_dump(exclude=own), table.graphs[: one.graphs], one.mus, one.data


class Key(NamedTuple):
    """A lane: a mechanism under W of some weights, how its step goes on, and its first step."""

    name: str
    weights: str
    falling: bool
    rate: float

    @property
    def told(self) -> str:
        """ "mafalda, least noise, falling"."""
        return self.name + ADDED[self.weights] + FALLING * self.falling


PLAIN, LEAST_NOISE = "metropolis-hastings", "least-noise"
FALLING = ", falling"  # what is added to a mechanism's name where its step falls to zero
ADDED = {PLAIN: "", LEAST_NOISE: ", least noise"}


def run(unit: Unit) -> list[Record]:
    """Return rows of all mechanisms, each at the step size that was best for it on other seeds."""
    data, graph = data_of(unit["name"]), tuple(unit["graph"].items())
    nodes = len(_mixing(graph, PLAIN))
    batches = len(data.train) // nodes // unit["batch_size"]
    scheme = FixedEpoch(epochs=math.ceil(unit["steps"] / batches), separation=batches)
    made = {key: _made_for(key, unit, scheme) for key in _keys(unit)}
    lanes = {
        key: Lane(
            source=one.source,
            stddev=_stddev(one, unit),
            step_sizes=key.rate * steps_of(scheme.horizon, falling=key.falling),
        )
        for key, one in made.items()
    }
    settled = {
        weights: Run(
            loss=data.loss,
            examples=data.train,
            test=data.test,
            measured=unit["measured"],
            partition=iid(len(data.train), nodes),
            gossip=FixedGossip(mixing=_mixing(graph, weights)),
            rule=scheme.rule,
            horizon=scheme.horizon,
            clip=unit["clip"],
            whose=unit["whose"],
            optimizer=OPTIMIZERS[unit["optimizer"]],
        )
        for weights in dict.fromkeys(key.weights for key in lanes)
    }
    tuned = _losses(settled, lanes, range(TUNING, TUNING + unit["tuning_seeds"]))
    best = {
        told: min(members, key=lambda key: float(np.mean(tuned[key])))
        for told, members in _by_name(lanes).items()
    }
    found = _losses(settled, {key: lanes[key] for key in best.values()}, range(unit["seeds"]))
    setting = ", ".join(filter(None, (label(unit["graph"]), unit["name"], unit["label"])))
    rows = []
    for told, key in best.items():
        design = made[key].design
        shared = {
            "setting": setting,
            "variant": unit["label"],
            "mechanism": told,
            "mu": unit["mu"],
            "epsilon": unit["mu"],
            "step_size": key.rate,
            "error": None if design is None else design.objective,
        }
        rows += [shared | {"seed": k, "test_loss": loss} for k, loss in enumerate(found[key])]
    return rows


def _keys(unit: Unit) -> Iterator[Key]:
    """Every mechanism at every step; one that falls moves as far in all as half of its first."""
    for weights, names in ((PLAIN, unit["mechanisms"]), (LEAST_NOISE, unit["least_noise"])):
        for name in names:
            for falling in (False, True):
                for rate in unit["step_sizes"]:
                    yield Key(name, weights, falling, (1 + falling) * rate)


def _by_name(keys_of: Mapping[Key, Any]) -> dict[str, list[Key]]:
    found: dict[str, list[Key]] = {}
    for key in keys_of:
        found.setdefault(key.told, []).append(key)
    return found


def steps_of(horizon: int, *, falling: bool) -> Array:
    """Step sizes over the first one: all alike, or falling linearly to 1 / T of it."""
    return 1 - np.arange(horizon) / horizon if falling else np.ones(horizon)


OPTIMIZERS: dict[str, Optimizer | None] = {
    "sgd": None,
    "momentum": Momentum(beta=0.9),
    "adamw": AdamW(),
}
TOGETHER = 2**22  # numbers of models that are run side by side: 32 MB


def _losses(
    settled: Mapping[str, Run], lanes: Mapping[Key, Lane], seeds: range
) -> dict[Key, list[float]]:
    """Losses of the last models, a list of seeds for each lane; infinite if it diverged."""
    found: dict[Key, list[float]] = {key: [] for key in lanes}
    for weights, here in settled.items():
        count = max(1, TOGETHER // (here.nodes * here.loss.dimension))
        items = [(key, lane) for key, lane in lanes.items() if key.weights == weights]
        for seed in seeds:
            for start in range(0, len(items), count):
                part = items[start : start + count]
                (end,) = train(here, [lane for _, lane in part], seeds=[seed])
                losses = np.asarray(end.test_loss)[0]
                for (key, _), loss in zip(part, losses, strict=True):
                    found[key].append(float(loss) if np.isfinite(loss) else math.inf)
    return found


def _stddev(one: Mechanism, unit: Unit) -> float:
    """Standard deviation of noise in a sum of clipped gradients that gives mu, records replaced."""
    if one.source is None:
        return 0.0
    return float(unit["clip"] * one.mu(noise_multiplier=1.0, adjacency="replace") / unit["mu"])


def _made_for(key: Key, unit: Unit, scheme: FixedEpoch) -> Mechanism:
    """The noise of a lane; across nodes, and before optimizers, one design serves all steps."""
    curvature, rate = tuple(unit["curvature"]), key.rate
    if unit["optimizer"] != "sgd" or key.name in (ACROSS, PAIRWISE):
        rate = (1 + key.falling) * DESIGNED / max(curvature)
    graph = tuple(unit["graph"].items())
    if key.name in (NONE, LDP, MAFALDA, KRONECKER):
        return _catalogued(key.name, graph, key.weights, scheme)
    return _made(key._replace(rate=rate), graph, scheme, curvature)


KRONECKER, ACROSS, PAIRWISE = "kronecker", "kronecker-loss", "edge-local-loss"
CAP = 4.0
"""Largest variance (squared) over that of independent noise: of "loss-capped" at every step, of
noise across nodes at every node. More of it lowers the error of designs by some percent, and moves
models more mid-run."""
ITERATES = 0.2  # share of the error of all iterates beside the loss: keeps noise mid-run small
DESIGNED = 0.5  # step that one design serves all steps from, over 1 / L; twice that if it falls
SETTLED = 1e-2  # relative gain at which noise across nodes and steps has settled


@cache
def _made(
    key: Key, graph: tuple[tuple[str, Any], ...], scheme: FixedEpoch, curvature: tuple[float, ...]
) -> Mechanism:
    name, w = key.name, _mixing(graph, key.weights)
    rates = key.rate * steps_of(scheme.horizon, falling=key.falling)
    how: dict[str, Any] = {
        "horizon": scheme.horizon,
        "learning_rates": np.minimum(rates, 1 / max(curvature)),
    }
    if name == "last-iterate":
        error: Any = ErrorMeasure(of=name, **how)
    else:
        how["curvature"] = np.array(curvature)
        error = ErrorMeasure(of="loss", **how)
    if name in ("loss-mixed", ACROSS, PAIRWISE):
        error = _mixed(error, ErrorMeasure(of="all-iterates", **how), w=w, scheme=scheme)
    on: dict[str, Any] = {"mixing": w, "participation": scheme, "error": error}
    if name in (ACROSS, PAIRWISE):
        space = SpaceStructure(kind="edge-local" if name == PAIRWISE else "dense")
        found = solve(SpaceTimeProblem(max_variance=CAP, space=space, **on), gap=SETTLED)
    else:
        cap = CAP * scheme.epochs if name == "loss-capped" else None
        found = solve(TimeProblem.decentralized(max_variance=cap, **on), gap=GAP)
    assert found.design is not None
    return of_design(found.design, name=name)


def _mixed(*errors: ErrorMeasure, w: Array, scheme: FixedEpoch) -> ErrorMixture:
    """The loss, and all iterates a little, both over what independent noise has of them."""
    on: dict[str, Any] = {"mixing": w, "participation": scheme}
    of_ldp = [np.trace(TimeProblem.decentralized(error=error, **on).gram) for error in errors]
    return ErrorMixture(shares=np.array([1.0, ITERATES]) / of_ldp, measures=errors)


@cache
def _catalogued(
    name: str, graph: tuple[tuple[str, Any], ...], weights: str, scheme: FixedEpoch
) -> Mechanism:
    cap = CAP if name == KRONECKER else None
    network = Network(mixing=_mixing(graph, weights), participation=scheme, max_variance=cap)
    return mechanism(name, network)


@cache
def _mixing(graph: tuple[tuple[str, Any], ...], weights: str) -> Array:
    kind, *rest = dict(graph).items()
    ego = kind[1] == "ego-facebook"
    built = ego_facebook(**dict(rest)) if ego else build_graph(**dict(graph))
    return mixing_matrix(built, weights=weights)


MechanismName = Literal[
    "none",
    "ldp",
    "mafalda",
    "last-iterate",
    "loss",
    "loss-capped",
    "loss-mixed",
    "kronecker",
    "kronecker-loss",
    "edge-local-loss",
]


class DataTable(Table):
    """One data set; ``curvature`` is a guess, of a range of eigenvalues of its loss's Hessian, and
    steps that fall begin at twice the sizes given."""

    name: Literal["a9a", "california-housing"]
    curvature: keys.Positives
    step_sizes: keys.Positives
    adaptive_step_sizes: keys.Positives
    batch_size: keys.Count


class TrainingTable(Table):
    """``steps`` are at least so many, in whole epochs of fixed batches; mechanisms under
    Metropolis-Hastings weights, and those of ``least_noise`` under W of least noise."""

    graphs: keys.Graphs
    data: Annotated[list[DataTable], Field(min_length=1)]
    mechanisms: Annotated[list[MechanismName], Field(min_length=1)]
    least_noise: list[MechanismName]
    mus: keys.Positives
    steps: keys.Count
    clip: keys.Positive
    measured: keys.Count
    tuning_seeds: keys.Count
    seeds: keys.Count


class VariantTable(Table):
    """Another rule of steps, or the mean model, on the first ``graphs``."""

    label: Text
    optimizer: Literal["sgd", "momentum", "adamw"] = "sgd"
    whose: Literal["nodes", "mean"] = "nodes"
    graphs: keys.Count
    data: keys.Names
    mus: keys.Positives
    mechanisms: Annotated[list[MechanismName], Field(min_length=1)]
    least_noise: list[MechanismName]


class LossSettings(Settings):
    """Keys of ``problems/papers/loss.toml``."""

    training: TrainingTable
    variants: list[VariantTable]


def summary(rows: Rows, settings: LossSettings) -> list[Record]:
    """Losses of the models after the last step, each mechanism at its best step size."""
    return over_seeds([row | {"accuracy": None} for row in rows], "mu", "step_size", "error")


def costs(rows: Rows) -> list[Record]:
    """Return what noise costs: the loss less that without noise at the better kind of step, over
    what independent noise and Mafalda's cost as published, and with the same step and W;
    ``cost_alike`` is the loss less that without noise at the same kind of step."""
    found = []
    for (setting, variant, mu), members in groups(rows, "setting", "variant", "mu"):
        losses = {
            name: float(np.mean([row["test_loss"] for row in of]))
            for (name,), of in groups(members, "mechanism")
        }
        free = {name: loss for name, loss in losses.items() if _kind(name) == NONE}
        best = min(free, key=free.__getitem__)
        noisy = [row for row in members if row["mechanism"] not in free]
        paired = [row | {"mechanism": NONE} for row in members if row["mechanism"] == best] + noisy
        steps = {row["mechanism"]: row["step_size"] for row in noisy}
        spent = {name: interval(costs_of_noise(paired, name)) for name in steps}
        for name, cost in spent.items():
            here = {"setting": setting, "variant": variant, "mechanism": name, "mu": mu}
            alike = free.get(NONE + FALLING * name.endswith(FALLING))
            less = None if alike is None else losses[name] - alike
            added = name.removeprefix(_kind(name))
            over = {
                f"over_{other}{kind}": cost.mean / spent[to].mean if to in spent else None
                for other in (LDP, MAFALDA)
                for kind, to in (("", other), ("_alike", other + added))
            }
            ends = cost.columns("cost") | {"cost_alike": less}
            found.append(here | {"step_size": steps[name]} | ends | over)
    return found


def _kind(mechanism: str) -> str:
    """A mechanism's name without what is added for W and the step."""
    return mechanism.partition(",")[0]


def levers(table: Sequence[Record]) -> list[Record]:
    """Return the median of each ratio of costs over settings and budgets, and its ends."""
    found = []
    for (name,), rows in groups(table, "mechanism"):
        line: Record = {"mechanism": name, "settings": len(rows)}
        for over in (name for name in table[0] if name.startswith("over_")):
            known = [row[over] for row in rows if row[over] is not None]
            ends = (min(known), float(np.median(known)), max(known)) if known else (None,) * 3
            line |= {over + end: at for end, at in zip(("_least", "", "_most"), ends, strict=True)}
        found.append(line)
    return found


def tables(rows: Rows, settings: LossSettings) -> Mapping[str, Rows]:
    """Tabulate what noise costs, and what each lever saves where nothing else varies."""
    found = costs(rows)
    return {"costs.csv": found, "levers.csv": levers(_plain(found))}


def _plain(table: Sequence[Record]) -> list[Record]:
    return [row for row in table if not row["variant"]]


def pictures(rows: Rows, found: Rows, settings: LossSettings) -> Pictures:
    """Draw what noise costs by setting, and what each lever saves."""
    table = _plain(costs(rows))
    return {"costs": draw(table), "levers": draw_levers(table)}


SHOWN = (LDP, MAFALDA, "loss-capped", KRONECKER, ACROSS, ACROSS + ADDED[LEAST_NOISE])


def draw(table: Sequence[Record]) -> Figure:
    """A panel a budget: settings down, what noise costs across, over Mafalda's at a constant step;
    hollow where the step falls."""
    panels, looks = list(groups(table, "mu")), looks_of(SHOWN)
    markers = dict(zip(SHOWN, "os^vD<", strict=True))  # of which a hollow one is told from a full
    settings = list(dict.fromkeys(row["setting"] for row in table))
    figure = new_figure(4.2 * len(panels) + 2.0, 0.62 * len(settings) + 1.9)
    axes = np.atleast_1d(figure.subplots(1, len(panels), sharey=True))
    for place, ((mu,), members) in zip(axes, panels, strict=True):
        for lane, name in enumerate(name + f for name in looks for f in ("", FALLING)):
            shown = [row for row in members if row["mechanism"] == name]
            shown = [row for row in shown if row["cost_low"] is not None and row["over_mafalda"]]
            if not shown:
                continue
            down = 0.075 * (lane - len(looks) + 0.5)
            unit = np.array([row["cost"] / row["over_mafalda"] for row in shown])
            cost = np.array([[row[f"cost{end}"] for end in ("_low", "", "_high")] for row in shown])
            of = name.removesuffix(FALLING)
            colour = looks[of]["color"]
            place.errorbar(
                [row["over_mafalda"] for row in shown],
                [settings.index(row["setting"]) + down for row in shown],
                xerr=np.diff(cost).T / unit,
                label=name,
                linestyle="",
                markersize=4,
                color=colour,
                marker=markers[of],
                markerfacecolor="white" if name.endswith(FALLING) else colour,
            )
        _mark(place)
        place.set_title(f"mu = {mu:g}", fontsize=10)
    axes[0].set_yticks(range(len(settings)), settings, fontsize=8)
    axes[0].invert_yaxis()
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8)
    return figure


def draw_levers(table: Sequence[Record]) -> Figure:
    """Draw costs over Mafalda's at a constant step, the dearest first: a dot a setting and budget,
    a bar to their median."""
    known = [row for row in table if row["over_mafalda"] is not None]
    ratios = {
        name: [row["over_mafalda"] for row in rows] for (name,), rows in groups(known, "mechanism")
    }
    names = sorted(ratios, key=lambda name: -float(np.median(ratios[name])))
    figure = new_figure(7.6, 0.27 * len(names) + 1.0)
    place = figure.subplots()
    medians = [float(np.median(ratios[name])) for name in names]
    place.barh(names, medians, color="0.85", label="median of settings")
    for end, look in zip(("", FALLING), looks_of(["constant", "falling"]).values(), strict=True):
        dots = {**look, "linestyle": "", "markersize": 3}
        place.plot([], [], label="falling step" if end else "constant step", **dots)
        for at, name in enumerate(names):
            if name.endswith(FALLING) == bool(end):
                place.plot(ratios[name], [at] * len(ratios[name]), **dots)
    place.legend(loc="lower right")
    place.margins(y=0.01)
    place.invert_yaxis()
    _mark(place)
    return figure


def _mark(place: Axes) -> None:
    place.axvline(0.5, color="0.6", linewidth=0.8, zorder=0)
    place.axvline(1.0, color="0.6", linewidth=0.8, linestyle=":", zorder=0)
    place.set_xlabel("cost of noise over that of Mafalda's at a constant step")


def paragraph(rows: Rows, found: Rows, settings: LossSettings) -> str:
    """Say what noise costs under each mechanism."""
    table = settings.training
    told = [
        f"Test loss after the last step, less that without noise at the better kind of step, mean "
        f"of {table.seeds} seeds; every mechanism, and none, has the step size that was best for "
        f"it on {table.tuning_seeds} other seeds. Records are replaced, clip {table.clip:g}, at "
        f"least {table.steps} steps; budgets are before a reader of all messages, whatever "
        "gradients answer to. In brackets, over what Mafalda's noise costs, and over independent "
        "noise, both under Metropolis-Hastings weights at constant steps. Falling: the step falls "
        "to zero; least noise: W is chosen for one step's."
    ]
    for (setting, mu), members in groups(costs(rows), "setting", "mu"):
        parts = [
            f"{row['mechanism']} {row['cost']:.4f}"
            + (f" ({row['over_mafalda']:.2f}, {row['over_ldp']:.2f})" if row["over_ldp"] else "")
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
