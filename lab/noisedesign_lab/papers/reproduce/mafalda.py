"""Mafalda-SGD, sections 7.2 and C.1: house prices, learnt with noise correlated over time.

As in the paper and its code, every node cycles through its batches, gradients of single records
are clipped, and noise is calibrated to a reader of all messages. Data are split, dealt and
standardised anew for every seed. The loss of a run is the mean over nodes of their models' mean
squared error on test records, averaged over the last steps."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field, SerializeAsAny

from noisedesign.base.checks import InputError
from noisedesign.files.graph_tables import GraphOfKind
from noisedesign.files.schema import Table, Text
from noisedesign.mechanisms.baselines import baseline
from noisedesign.privacy.accounting import epsilon_of
from noisedesign.privacy.runs import FIXED_RESPONSES
from noisedesign.problem.problem import TimeProblem
from noisedesign.system.participation import FixedEpoch
from noisedesign_lab.datasets import Examples, california_housing
from noisedesign_lab.papers.reproduce import keys
from noisedesign_lab.papers.reproduce.experiment import Experiment, Record, Rows, Settings, Unit
from noisedesign_lab.papers.reproduce.pictures import (
    Pictures,
    loss_against_epsilon,
    loss_against_steps,
)
from noisedesign_lab.papers.reproduce.statistics import TOO_SHORT, columns_of, groups, over_seeds
from noisedesign_lab.papers.reproduce.step_sizes import Chosen, best, side_by_side
from noisedesign_lab.tasks.mechanisms import Mechanism, Network, check_names, mechanism
from noisedesign_lab.tasks.training_task import TrainingTask, columns
from noisedesign_lab.training.losses import MLP
from noisedesign_lab.training.partition import Standardization, iid, split
from noisedesign_lab.training.seeding import Use, generator

NONE, LDP, MAFALDA, ANTIPGD = "none", "ldp", "mafalda", "antipgd"


class NetworkTable(Table):
    """A network, how often it sees its data, and what protects them."""

    name: Text
    graph: SerializeAsAny[GraphOfKind]
    separation: keys.Count
    mechanisms: keys.Names
    tuned: bool = False
    drawn: bool = False
    optional: bool = False


class TuningTable(Table):
    """Step sizes to choose from for every mechanism and budget, on seeds of their own."""

    step_sizes: Annotated[keys.Positives, Field(min_length=3)]
    tuning_seeds: keys.Count
    seeds: keys.Count


class MafaldaSettings(Settings):
    """Keys of ``problems/papers/mafalda.toml``."""

    networks: Annotated[list[NetworkTable], Field(min_length=1)]
    epochs: keys.Count
    mus: keys.Positives
    delta: keys.Share
    adjacency: Text
    clip: keys.Positive
    step_size: keys.Positive
    tuning: TuningTable
    hidden: keys.Count
    test: keys.Share
    measured: keys.Count
    last: keys.Count
    seeds: keys.Count
    bound: keys.Positive
    level: keys.Positive
    curves: list[keys.Positive]


# --- the work -------------------------------------------------------------------------------------


def units(settings: MafaldaSettings) -> list[Unit]:
    """A seed of a network each, all seeds of one before the next: at the published step size, and
    at tuned ones."""
    shared = settings.model_dump(
        exclude={"experiment", "description", "source", "tags", "networks", "seeds"}
        | {"level", "curves", "step_size", "tuning"}
    )
    fixed, tuning = {"step_sizes": [settings.step_size]}, settings.tuning
    tuned = tuning.model_dump(exclude={"seeds"})
    return [
        shared
        | steps
        | network.model_dump(exclude={"optional", "tuned", "drawn", "graph"})
        | {"graph": network.graph.model_dump(), "seed": seed}
        for network in settings.networks
        if _is_here(network)
        for steps, seeds in [(fixed, settings.seeds), (tuned, tuning.seeds * network.tuned)]
        for seed in range(seeds)
    ]


def _is_here(network: NetworkTable) -> bool:
    check_names(network.mechanisms)
    if not network.optional:
        return True
    try:
        network.graph.mixing(Path())
    except InputError:
        return False
    return True


@lru_cache(maxsize=1)
def _designed(key: str) -> tuple[Network, tuple[Mechanism, ...], dict[str, float]]:
    """A network with its mechanisms, and the noise of each in the models, over that of LDP."""
    unit = json.loads(key)
    table = NetworkTable.model_validate(unit["network"])
    mixing, _ = table.graph.mixing(Path())
    use = FixedEpoch(epochs=unit["epochs"], separation=table.separation)
    network = Network(mixing=mixing, participation=use, responses=FIXED_RESPONSES)
    made = tuple(mechanism(name, network) for name in table.mechanisms)
    independent = baseline(TimeProblem.decentralized(mixing=mixing, participation=use), "ldp")
    errors = {one.name: _error(one, independent.certificate.objective) for one in made}
    return network, made, errors


def _error(made: Mechanism, independent: float) -> float:
    """Return the expected squared error of all iterates over that of LDP, at equal budgets."""
    if made.source is None:
        return 0.0
    if made.design is None:
        return 1.0
    return made.sensitivity_squared * made.design.certificate.objective / independent


def run(unit: Unit) -> list[Record]:
    """Rows of one seed: a row for every mechanism, budget and epoch."""
    *_, errors = _made(unit)
    setting, among = unit["name"], None
    if "tuning_seeds" in unit:
        setting += TUNED
        among = list(_tuned(json.dumps(unit | {"seed": None})))
    horizon = unit["epochs"] * unit["separation"]
    epochs = range(unit["separation"], horizon + 1, unit["separation"])
    last = range(max(1, horizon - unit["last"] + 1), horizon + 1)
    task, seed = _task(unit, [*epochs, *last]), unit["seed"]
    mus = _mus(unit)
    kept = ("mechanism", "seed", "step", "train_loss", "test_loss", "consensus_distance", "stddev")
    rows: list[Record] = []
    trained = side_by_side(task, [seed], unit["step_sizes"], among)
    for (name, epsilon), members in groups(trained, "mechanism", "epsilon"):
        losses = [row["test_loss"] for row in members if row["step"] in last]
        mean = None if None in losses else float(np.mean(losses))
        shared = {"setting": setting, "error": errors[name], "epsilon": epsilon}
        shared["mu"] = mus.get(epsilon, math.inf)
        shared["step_size"] = unit["step_sizes"][members[0]["number"]]
        for row in members:
            if row["step"] in epochs:
                at_the_end = {"last_loss": mean if row["step"] == horizon else None}
                rows.append({column: row[column] for column in kept} | shared | at_the_end)
    return rows


def _made(unit: Unit) -> tuple[Network, tuple[Mechanism, ...], dict[str, float]]:
    network = {name: unit[name] for name in ("name", "graph", "separation", "mechanisms")}
    return _designed(json.dumps({"network": network, "epochs": unit["epochs"]}))


def _mus(unit: Unit) -> dict[float, float]:
    """Return mu (not squared) by epsilon."""
    return {epsilon_of(mu=mu, delta=unit["delta"]): mu for mu in unit["mus"]}


def _task(unit: Unit, record: list[int]) -> TrainingTask:
    """Return the task of one seed."""
    designed, made, _ = _made(unit)
    train_on, test_on = _data(unit)
    return TrainingTask(
        loss=MLP(features=train_on.features.shape[1], hidden=unit["hidden"]),
        examples=train_on,
        test=test_on,
        partition=iid(len(train_on), designed.nodes),
        mixing=designed.mixing,
        participation=designed.participation,
        mechanisms=made,
        epsilons=list(_mus(unit)),
        seeds=[unit["seed"]],
        record=record,
        **{name: unit[name] for name in ("delta", "adjacency", "clip", "measured", "bound")},
    )


TUNING = 1_000_000  # first seed of runs that step sizes are chosen by, far from all others
TUNED = ", tuned steps"  # what is added to the name of a network
JUDGED = 5  # of the last steps are looked at in tuning: losses change little from one to the next


@lru_cache(maxsize=1)
def _tuned(key: str) -> tuple[Chosen, ...]:
    """Return the best step size of every mechanism and budget, one size after another."""
    unit = json.loads(key)
    horizon = unit["epochs"] * unit["separation"]
    first = max(1, horizon - unit["last"] + 1)
    record = np.unique(np.linspace(first, horizon, JUDGED).astype(int)).tolist()
    rows: list[Record] = []
    for seed in range(TUNING, TUNING + unit["tuning_seeds"]):
        task = _task(unit | {"seed": seed}, record)
        for number, size in enumerate(unit["step_sizes"]):
            rows += [r | {"number": number} for r in side_by_side(task, [seed], [size])]
    return tuple(best(rows))


def _data(unit: Unit) -> tuple[Examples, Examples]:
    """Return the records that one seed trains on and those it is tested on."""
    houses = california_housing()
    shares = {"train": 1 - unit["test"], "test": unit["test"]}
    parts = split(len(houses), shares, generator(unit["seed"], Use.EXAMPLES, 2))
    fitted = Standardization.of(houses.at(parts["train"]))
    return fitted.applied(houses.at(parts["train"])), fitted.applied(houses.at(parts["test"]))


# --- what came out --------------------------------------------------------------------------------


def summary(rows: Rows, settings: MafaldaSettings) -> list[Record]:
    """Summarise the last steps: loss, and gain over LDP in percent, of pairs of one seed."""
    final = []
    for _, members in groups(rows, "setting"):
        end = max(row["step"] for row in members)
        last = (row for row in members if row["step"] == end)
        final += [row | {"test_loss": row["last_loss"], "accuracy": None} for row in last]
    independent = {
        (row["setting"], row["epsilon"], row["seed"]): row["test_loss"]
        for row in final
        if row["mechanism"] == LDP
    }
    gains: dict[tuple[str, str, float], list[float | None]] = {}
    for row in final:
        base = independent.get((row["setting"], row["epsilon"], row["seed"]))
        key = row["setting"], row["mechanism"], row["epsilon"]
        loss = row["test_loss"]
        gain = None if loss is None or base is None else 100 * (1 - loss / base)
        gains.setdefault(key, []).append(gain)
    return with_excess(
        row | columns_of("gain", gains[row["setting"], row["mechanism"], row["epsilon"]])
        for row in over_seeds(final, "mu", "error", "step_size")
    )


def with_excess(summary: Iterable[Record]) -> list[Record]:
    """Add the loss less that without noise, and its share of that of independent noise."""
    rows = list(summary)
    losses = {(row["setting"], row["mechanism"], row["epsilon"]): row["test_loss"] for row in rows}
    found = []
    for row in rows:
        own, independent = (
            losses.get((row["setting"], name, row["epsilon"]), math.nan)
            - losses.get((row["setting"], NONE, math.inf), math.nan)
            for name in (row["mechanism"], LDP)
        )
        ratio = own / independent if row["mechanism"] != NONE else math.nan
        told = {"excess": own, "excess_over_ldp": ratio}
        found.append(row | {name: x if math.isfinite(x) else None for name, x in told.items()})
    return found


def epsilon_for(found: Rows, level: float) -> float | None:
    """Return the smallest epsilon of mean loss ``level``, interpolated in logarithms, if any."""
    points = sorted(
        (row["epsilon"], row["test_loss"])
        for row in found
        if math.isfinite(row["epsilon"]) and math.isfinite(row["test_loss"])
    )
    for (low, above), (high, below) in pairwise(points):
        if above > level >= below:
            way = math.log(above / level) / math.log(above / below)
            return float(low * (high / low) ** way)
    return None


def pictures(rows: Rows, found: Rows, settings: MafaldaSettings) -> Pictures:
    """Figures 3 and 4: loss against epsilon; Figures 3 and 5: loss against steps; of the networks
    that are to be drawn."""
    names = {one.name + end for one in settings.networks if one.drawn for end in ("", TUNED)}
    found = [row for row in found if row["setting"] in names]
    if not found:
        return {}
    drawn = {
        "loss-against-epsilon": loss_against_epsilon(
            _rounded(found), ylabel="test loss, last steps", log=True
        )
    }
    shown = [row for row in rows if row["setting"] in names]
    if curves := _rounded(_curves(shown, settings)):
        drawn["loss-against-steps"] = loss_against_steps(curves, log=True)
    best = min(row["test_loss"] for row in found)
    if math.isfinite(best):
        for name, figure in drawn.items():
            for axes in figure.axes:
                axes.set_ylim(best * 0.9, best * TOP[name])
    return drawn


TOP = {"loss-against-epsilon": 30, "loss-against-steps": 6}  # largest loss shown, over the least


def _rounded(rows: Rows) -> list[Record]:
    """Round epsilons to three digits, for titles and legends."""
    return [row | {"epsilon": float(f"{row['epsilon']:.3g}")} for row in rows]


def _curves(rows: Rows, settings: MafaldaSettings) -> list[Record]:
    """Rows of the budgets to draw, each with the run without noise beside it."""
    budgets = {row["mu"]: row["epsilon"] for row in rows if row["mu"] in settings.curves}
    return [
        row | {"epsilon": epsilon}
        for mu, epsilon in sorted(budgets.items())
        for row in rows
        if row["mu"] == mu or row["mechanism"] == NONE
    ]


def paragraph(rows: Rows, found: Rows, settings: MafaldaSettings) -> str:
    """Tell the results, network by network."""
    tuning = settings.tuning
    lines = [
        f"Test loss (mean squared error, in (100,000 dollars)^2, mean of the last {settings.last} "
        f"steps and of {settings.seeds} seeds, delta = {settings.delta:g}; at tuned steps of "
        f"{tuning.seeds} seeds, each step the best of {tuning.step_sizes[0]:g} to "
        f"{tuning.step_sizes[-1]:g} on others). Gain: percent below {LDP} (DP-D-SGD) at the same "
        "epsilon, with its 95 % interval over seeds.\n"
    ]
    for (setting,), members in groups(found, "setting"):
        lines.append(f"- **{setting}**. {_told(members, settings)}")
    missing = [network.name for network in settings.networks if not _is_here(network)]
    if missing:
        lines.append(f"- Not run, since its graph is not on this machine: {', '.join(missing)}.")
    return "\n".join(lines)


def _told(found: Rows, settings: MafaldaSettings) -> str:
    by_name = {name: members for (name,), members in groups(found, "mechanism")}
    told = []
    if NONE in by_name:
        told.append(f"Without noise {by_name[NONE][0]['test_loss']:.3f}.")
    for name, members in by_name.items():
        gains = [row for row in members if row["gain"] is not None]
        if name in (NONE, LDP, ANTIPGD) or not gains:
            continue
        mean = round(float(np.mean([row["gain"] for row in gains])))
        told.append(
            f"{name}: mean gain {mean} % ({', '.join(map(_gain, gains))}); "
            f"{members[0]['error']:.2f} of the noise of {LDP} in the models, as designed."
        )
    if LDP in by_name and MAFALDA in by_name:
        told.append(_ratio(by_name, settings.level))
    if ANTIPGD in by_name:
        losses = [row["test_loss"] for row in by_name[ANTIPGD]]
        told.append(f"{ANTIPGD}: at least {min(losses):.3g}.")
    if found[0]["setting"].endswith(TUNED):
        sizes = [row["step_size"] for row in found]
        ends = {settings.tuning.step_sizes[0], settings.tuning.step_sizes[-1]}
        at_an_end = sum(size in ends for size in sizes)
        told.append(
            f"Steps from {min(sizes):g} to {max(sizes):g}, {at_an_end} of {len(sizes)} at an end "
            "of the range."
        )
    return " ".join(told)


def _gain(row: Record) -> str:
    """Return "25 % at 2.25", and where seeds cannot tell its sign, that."""
    low, high = row["gain_low"], row["gain_high"]
    unsure = low is None or low <= 0 <= high
    between = "" if low is None else f" ({low:.0f} to {high:.0f})"
    return (
        f"{round(row['gain'])} %{between} at {row['epsilon']:.3g}"
        f"{f', {TOO_SHORT}' if unsure else ''}"
    )


def _ratio(by_name: Mapping[str, Rows], level: float) -> str:
    """Tell the factor in epsilon that independent noise takes to the same loss."""
    needed = {name: epsilon_for(members, level) for name, members in by_name.items()}
    base = needed.get(LDP)
    if base is None:
        return f"{LDP} does not cross a loss of {level:g} on this grid."
    told = [
        f"{name} {epsilon:.3g} ({base / epsilon:.2f} times less)"
        for name, epsilon in needed.items()
        if epsilon is not None and name not in (LDP, ANTIPGD)
    ]
    told += [
        f"{name} less than any of the grid"
        for name, members in by_name.items()
        if name != NONE and max(row["test_loss"] for row in members) < level
    ]
    return f"A loss of {level:g} takes {LDP} epsilon {base:.3g}, {', '.join(told)}."


EXPERIMENT = Experiment(
    title="Mafalda-SGD: house prices under noise correlated over time, and over nodes",
    settings=MafaldaSettings,
    columns=columns(
        "setting:str mechanism:str epsilon mu seed:int step:int train_loss test_loss last_loss "
        "consensus_distance stddev error step_size"
    ),
    units=units,
    run=run,
    summary=summary,
    pictures=pictures,
    paragraph=paragraph,
    version=2,
)
