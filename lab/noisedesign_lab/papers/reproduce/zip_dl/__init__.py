"""Zip-DL (Biswas and others 2025), section 6 and appendix A, as published: what noise on messages
costs in rating films, what membership attacks find, and how near to normal noisy gradients are.
Noise is told by its standard deviation: gradients are not clipped, so no account holds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from noisedesign.base.checks import InputError
from noisedesign.files.picture_file import new_figure
from noisedesign.files.picture_looks import looks_of
from noisedesign.files.schema import Table, Text
from noisedesign_lab.papers.reproduce import keys
from noisedesign_lab.papers.reproduce.experiment import Experiment, Record, Rows, Settings, Unit
from noisedesign_lab.papers.reproduce.pictures import Pictures
from noisedesign_lab.papers.reproduce.statistics import columns_of, groups, interval
from noisedesign_lab.papers.reproduce.zip_dl import assumption, training
from noisedesign_lab.papers.reproduce.zip_dl.training import NONE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PUBLISHED = "as published"  # the setting that others differ from in what their names say
TARGET = 1.25  # of the best RMSE without noise, to which communication is counted (section 6.3)
SHARES = (
    *("threshold_auc", "threshold_auc_mean", "threshold_tpr", "threshold_tpr_rare"),
    *("classifier_auc", "classifier_tpr", "classifier_tpr_rare"),
)


class TrainingTable(Table):
    """The model, its training at every node, and the unit of noise."""

    factors: keys.Count
    test: keys.Share
    split_seed: keys.Natural
    step_size: keys.Positive
    batch_size: keys.Count
    sigma: keys.Positive


class AttackTable(Table):
    """Numbers of messages of a victim, of test ratings and of passes that the classifier learns."""

    models: Annotated[int, Field(ge=2)]
    others: keys.Count
    epochs: keys.Count


class LanesTable(Table):
    """One mechanism with K gossip rounds, at these multiples of sigma."""

    mechanism: Literal["none", "zip-dl", "muffliato"]
    rounds: keys.Count = 1
    levels: Annotated[list[keys.Nonnegative], Field(min_length=1)] = Field(default=[0.0])


class VariantTable(Table):
    """A setting: its random regular graph, clip, dropout, steps, and what is run in it."""

    setting: Text
    nodes: Annotated[int, Field(ge=4)] = 100
    degree: Annotated[int, Field(ge=2)] = 6
    graph_seed: keys.Natural = 0
    steps: keys.Count
    seeds: keys.Count = 1
    clip: keys.Positive = math.inf
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    correlation: Annotated[float, Field(ge=0, lt=1)] = 0.1
    victims: keys.Natural = 0
    lanes: Annotated[list[LanesTable], Field(min_length=1)]


class AssumptionTable(Table):
    """Passes after which a model is tried, noise levels, draws of each, coordinates compared."""

    passes: keys.Counts
    levels: keys.Positives
    draws: Annotated[int, Field(ge=2)]
    coordinates: keys.Count


class ZipDlSettings(Settings):
    """Keys of ``problems/papers/zip-dl.toml``."""

    training: TrainingTable
    attack: AttackTable
    assumption: AssumptionTable
    variants: Annotated[list[VariantTable], Field(min_length=1)]


def units(settings: ZipDlSettings) -> list[Unit]:
    """A seed of a setting each, first the first seed of all settings; then those of the test."""
    _check(settings.variants)
    trained = settings.training.model_dump()
    found = []
    for seed in range(max(variant.seeds for variant in settings.variants)):
        for variant in settings.variants:
            if seed < variant.seeds:
                lanes = [
                    [lane.mechanism, lane.rounds, level]
                    for lane in variant.lanes
                    for level in lane.levels
                ]
                own = variant.model_dump(exclude={"seeds", "lanes"})
                shared = trained | settings.attack.model_dump() | {"seed": seed}
                found.append(shared | own | {"lanes": lanes})
    table = settings.assumption.model_dump()
    found += [trained | table | {"seed": 0, "passes": count} for count in table["passes"]]
    return found


def _check(variants: list[VariantTable]) -> None:
    """Refuse settings of one name, whose rows would be taken for seeds of one."""
    names = [variant.setting for variant in variants]
    if len({*names, assumption.SETTING}) <= len(names):
        expected, got = f"names of their own, and not {assumption.SETTING!r}", ", ".join(names)
        raise InputError("variants.setting", expected=expected, got=got)
    for variant in variants:
        if variant.victims > variant.nodes:
            got = f"{variant.victims} in {variant.setting!r}"
            raise InputError("variants.victims", expected=f"at most {variant.nodes} nodes", got=got)


def run(unit: Unit) -> Rows:
    """Rows of one unit."""
    return assumption.run(unit) if "passes" in unit else training.run(unit)


def summary(rows: Rows, _: ZipDlSettings) -> list[Record]:
    """Summarise runs: the least RMSE as ``test_loss``, attacks at the end, and gossip rounds until
    RMSE is 1.25 times the best without noise, None where a seed does not get there."""
    runs = [_run(members) for _, members in groups(_trained(rows), *RUN)]
    best = {(r["setting"], r["seed"]): r["test_loss"] for r in runs if r["mechanism"] == NONE}
    found = []
    for (setting, name, rounds, level), members in groups(runs, *RUN[:4]):
        shown = name if rounds == 1 and name != "muffliato" else f"{name}-{rounds}"
        told = {"setting": setting, "mechanism": shown, "epsilon": math.inf}
        told |= interval([r["test_loss"] for r in members]).columns("test_loss")
        told |= {"accuracy": None, "level": level, "stddev": members[0]["stddev"]}
        for column in ("whole_rmse", *SHARES):
            told |= columns_of(column, [r[column] for r in members])
        for end in (f"{share}_{side}" for share in SHARES for side in ("low", "high")):
            if told[end] is not None:  # of a mean of shares, which is from 0 to 1
                told[end] = min(max(told[end], 0.0), 1.0)
        counts = [_rounds_to(r, best.get((setting, r["seed"]))) for r in members]
        known = [count for count in counts if count is not None]
        reached = sum(known) / len(known) if len(known) == len(counts) else None
        found.append(told | {"rounds_to_target": reached, "seeds": len(members)})
    return found


RUN = ("setting", "mechanism", "rounds", "level", "seed")


def _trained(rows: Rows) -> list[Record]:
    return [row for row in rows if row["setting"] != assumption.SETTING]


def _run(members: Rows) -> Record:
    """Tell a run by its last row, with the least RMSE and its path; infinite where it diverged."""
    gone = any(row["status"] != "ok" for row in members)
    path = [(row["step"], row["test_rmse"]) for row in members if row["test_rmse"] is not None]
    least = math.inf if gone else min(rmse for _, rmse in path)
    return dict(members[-1]) | {"test_loss": least, "path": path}


def _rounds_to(run: Record, best: float | None) -> float | None:
    if best is None:
        return None
    steps = [step for step, rmse in run["path"] if rmse <= TARGET * best]
    return float(min(steps) * run["rounds"]) if steps else None


def tables(rows: Rows, _: ZipDlSettings) -> dict[str, Rows]:
    """Kolmogorov and Smirnov's distances of Assumption 5.6, by passes and noise level."""
    ends = ("least", "median", "most", "rejected")
    names = ("step", "level", *(f"{of}_{end}" for of in ("ks", "shape") for end in ends))
    tried = [row for row in rows if row["setting"] == assumption.SETTING]
    return {"assumption.csv": [{name: row[name] for name in names} for row in tried]}


def pictures(rows: Rows, found: Rows, settings: ZipDlSettings) -> Pictures:
    """RMSE against what attacks find, as Figures 2, 7 and 9, and by dropout, as Figure 12."""
    drawn = {}
    if any(row["setting"] == PUBLISHED for row in found):
        drawn["attacks"] = _of_attacks(found)
    rates = {
        variant.setting: 100 * variant.dropout
        for variant in settings.variants
        if variant.dropout or variant.setting == PUBLISHED
    }
    if any(rates.get(row["setting"]) for row in found):
        drawn["dropout"] = _of_dropout(found, rates)
    return drawn


def _of_attacks(found: Rows) -> Figure:
    titles = {
        "threshold_auc": "threshold attack, ROC AUC",
        "classifier_auc": "classifier attack, ROC AUC",
        "classifier_tpr": "classifier attack, TPR at 1 % FPR",
    }
    figure = new_figure(13.0, 4.4)
    axes = figure.subplots(1, len(titles), sharey=True)
    shown = [
        row for row in found if row["setting"] == PUBLISHED and math.isfinite(row["test_loss"])
    ]
    looks = looks_of(row["mechanism"] for row in shown)
    for place, (name, title) in zip(axes, titles.items(), strict=True):
        for (mechanism,), members in groups(shown, "mechanism"):
            ordered = sorted(members, key=lambda row: row["level"])
            x, y = ([row[key] for row in ordered] for key in (name, "test_loss"))
            place.plot(x, y, label=mechanism, markersize=5, linewidth=1.0, **looks[mechanism])
            for row in ordered:
                if row[f"{name}_low"] is not None:
                    beside, above = (_errors(row, key) for key in (name, "test_loss"))
                    spot = row[name], row["test_loss"]
                    how = {"color": looks[mechanism]["color"], "alpha": 0.4, "fmt": "none"}
                    place.errorbar(*spot, xerr=beside, yerr=above, **how)
        place.set_xlabel(title)
    axes[0].set_ylabel("least test RMSE (stars)")
    handles, names = axes[0].get_legend_handles_labels()
    title = "along a line: more noise; bars: 95 % intervals over seeds"
    figure.legend(
        handles, names, loc="outside lower center", ncols=len(names), frameon=False, title=title
    )
    return figure


def _errors(row: Record, name: str) -> list[list[float]]:
    """Lengths of an interval below and above its mean, as matplotlib takes them."""
    return [[row[name] - row[f"{name}_low"]], [row[f"{name}_high"] - row[name]]]


def _of_dropout(found: Rows, rates: dict[str, float]) -> Figure:
    """Draw the error by ``rates``, of settings, of nodes that are out in per cent."""
    figure = new_figure(6.4, 4.2)
    axes = figure.subplots()
    wanted = [row for row in found if row["setting"] in rates and math.isfinite(row["test_loss"])]
    lanes = {(r["mechanism"], r["level"]) for r in wanted if rates[r["setting"]]}
    named = [
        row | {"name": f"{row['mechanism']}, {row['level']:g} sigma"}
        for row in wanted
        if (row["mechanism"], row["level"]) in lanes
    ]
    looks = looks_of(row["name"] for row in named)
    for (label,), members in groups(named, "name"):
        ordered = sorted(members, key=lambda row: rates[row["setting"]])
        x, y = [rates[r["setting"]] for r in ordered], [r["test_loss"] for r in ordered]
        axes.plot(x, y, label=label, markersize=5, linewidth=1.2, **looks[label])
    axes.set_xlabel("nodes that are out, of those in the step before, %")
    axes.set_ylabel("least test RMSE (stars)")
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return figure


def paragraph(rows: Rows, found: Rows, settings: ZipDlSettings) -> str:
    """Tell the results beside what is published."""
    told = [
        "MovieLens small on random regular graphs: all films, users dealt to nodes in their order, "
        f"{settings.training.factors} factors of users and films, all shared; a step is a pass of "
        "each node over its own ratings, then gossip. RMSE is of a node's model on test ratings of "
        "its own users. Nothing here is a guarantee: no account holds without a clip, and a "
        "stronger attack would find more.",
        "Published in words: without noise RMSE 1.11 and threshold AUC 60.20 %; Zip-DL 1.32 and "
        "52.84 %, classifier 63.87 %; Muffliato-10 never below 56.535 %, classifier 74.90 % at "
        "1.42.",
    ]
    for (setting,), members in groups(found, "setting"):
        lines = [
            f"{row['mechanism']} at {row['level']:g}: "
            + (
                "diverged"
                if not math.isfinite(row["test_loss"])
                else ", ".join(
                    [f"{row['test_loss']:.3f}"]
                    + [f"{100 * row[name]:.1f} %" for name in SHOWN if row[name] is not None]
                )
            )
            for row in members
        ]
        told.append(f"**{setting}** (RMSE; threshold, classifier AUC): {'; '.join(lines)}.")
    return "\n\n".join(told)


SHOWN = ("threshold_auc", "classifier_auc")

EXPERIMENT = Experiment(
    title="Zip-DL: what noise on messages costs in rating films, and what attacks find out",
    settings=ZipDlSettings,
    columns=training.COLUMNS,
    units=units,
    run=run,
    summary=summary,
    pictures=pictures,
    paragraph=paragraph,
    tables=tables,
    version=3,
)
