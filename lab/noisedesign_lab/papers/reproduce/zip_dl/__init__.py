"""Zip-DL (Biswas and others 2025), section 6 and appendix A: what noise on messages costs in rating
films, and what membership attacks find. Noise is told by its standard deviation: gradients are not
clipped, so no account holds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from noisedesign.files.picture_file import new_figure
from noisedesign.files.picture_looks import looks_of
from noisedesign.files.schema import Table
from noisedesign_lab.papers.reproduce import keys
from noisedesign_lab.papers.reproduce.experiment import Experiment, Record, Rows, Settings, Unit
from noisedesign_lab.papers.reproduce.pictures import Pictures
from noisedesign_lab.papers.reproduce.statistics import columns_of, groups, interval
from noisedesign_lab.papers.reproduce.zip_dl import training
from noisedesign_lab.papers.reproduce.zip_dl.training import NO_DROPOUT

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class NetworkTable(Table):
    """A random regular graph."""

    nodes: Annotated[int, Field(ge=4)]
    degree: Annotated[int, Field(ge=2)]
    graph_seed: keys.Natural


class TrainingTable(Table):
    """Films of at least ``least_ratings`` ratings, and how factors are trained."""

    least_ratings: keys.Count
    factors: keys.Count
    test: keys.Share
    split_seed: keys.Natural
    steps: keys.Count
    step_size: keys.Positive
    batch_size: keys.Count
    clip: keys.Positive
    measured: keys.Count
    seeds: keys.Count


class NoiseTable(Table):
    """Standard deviations are ``levels`` times ``sigma``; Muffliato's gossip rounds."""

    sigma: keys.Positive
    levels: keys.Positives
    rounds: keys.Counts


class AttackTable(Table):
    """Numbers of victims a seed, of messages of each, and of test ratings beside its own."""

    victims: keys.Count
    models: Annotated[int, Field(ge=2)]
    others: keys.Count


class DropoutTable(Table):
    """Rates at which nodes are out of a step, and the clip without which such nodes diverge."""

    clip: keys.Positive
    rates: list[Annotated[float, Field(gt=0, lt=1)]]
    levels: keys.Positives


class ZipDlSettings(Settings):
    """Keys of ``problems/papers/zip-dl.toml``."""

    network: NetworkTable
    training: TrainingTable
    noise: NoiseTable
    attack: AttackTable
    dropout: DropoutTable


def units(settings: ZipDlSettings) -> list[Unit]:
    """A seed each, then a seed and a rate of dropout each."""
    shared = {**settings.network.model_dump(), **settings.training.model_dump(exclude={"seeds"})}
    shared |= {**settings.noise.model_dump(), **settings.attack.model_dump()}
    found = []
    for seed in range(settings.training.seeds):
        found.append(shared | {"seed": seed, "dropout": 0.0})
        table = settings.dropout
        other = {"levels": table.levels, "clip": table.clip, "rounds": [1], "victims": 0}
        found += [shared | other | {"seed": seed, "dropout": rate} for rate in (0.0, *table.rates)]
    return found


def best(rows: Rows) -> list[Record]:
    """Return the least test RMSE, None where it diverged, and last attacks of every run."""
    found = []
    for _, members in groups(rows, "setting", "mechanism", "level", "seed"):
        last = members[-1]
        gone = any(row["status"] != "ok" for row in members)
        errors = [row["test_rmse"] for row in members if row["test_rmse"] is not None]
        told = dict(last) | {"test_loss": None if gone else min(errors)}
        if gone:
            told |= dict.fromkeys(ATTACKS)
        found.append(told)
    return found


ATTACKS = ("threshold_auc", "threshold_tpr", "classifier_auc", "classifier_tpr")


def summary(rows: Rows, _: ZipDlSettings) -> list[Record]:
    """Summarise the least RMSE over the run as ``test_loss``."""
    found = []
    for (setting, mechanism, level), members in groups(best(rows), "setting", "mechanism", "level"):
        losses = [math.nan if row["test_loss"] is None else row["test_loss"] for row in members]
        told = {
            "setting": setting,
            "mechanism": mechanism,
            "epsilon": math.inf,
            **interval(losses).columns("test_loss"),
            "accuracy": None,
            "level": level,
            "stddev": members[0]["stddev"],
        }
        for name in ATTACKS:
            told |= columns_of(name, [row[name] for row in members])
        found.append(told | {"seeds": len(members)})
    return found


def pictures(rows: Rows, found: Rows, settings: ZipDlSettings) -> Pictures:
    """RMSE against what attacks find, as Figures 2 and 7; RMSE against dropout, as Figure 12."""
    return {"attacks": _of_attacks(found), "dropout": _of_dropout(found)}


def _of_attacks(found: Rows) -> Figure:
    titles = {
        "threshold_auc": "threshold attack, ROC AUC",
        "classifier_auc": "classifier attack, ROC AUC",
        "classifier_tpr": "classifier attack, TPR at 1 % FPR",
    }
    figure = new_figure(13.0, 4.4)
    axes = figure.subplots(1, len(titles), sharey=True)
    attacked = [row for row in found if row["threshold_auc"] is not None]
    looks = looks_of(row["mechanism"] for row in attacked)
    for place, (name, title) in zip(axes, titles.items(), strict=True):
        for (mechanism,), members in groups(attacked, "mechanism"):
            ordered = sorted(members, key=lambda row: row["level"])
            x, y = ([row[key] for row in ordered] for key in (name, "test_loss"))
            place.plot(x, y, label=mechanism, markersize=5, linewidth=1.0, **looks[mechanism])
            for row in ordered:
                if row["level"] in (1.0, 16.0, 256.0):
                    text, spot = f"{row['level']:g}", (row[name], row["test_loss"])
                    near = {"xytext": (4, 3), "textcoords": "offset points", "fontsize": 7}
                    place.annotate(text, spot, **near)
        place.set_xlabel(title)
    axes[0].set_ylabel("least test RMSE (stars)")
    handles, names = axes[0].get_legend_handles_labels()
    here = [row for row in found if row["setting"] == NO_DROPOUT]
    diverged = [row for row in here if not math.isfinite(row["test_loss"])]
    gone = sorted({(row["mechanism"], row["level"]) for row in diverged})
    told = "; ".join(f"{name} at {level:g}" for name, level in gone)
    title = "numbers at points: noise over sigma" + (f"; diverged: {told}" if told else "")
    figure.legend(
        handles, names, loc="outside lower center", ncols=len(names), frameon=False, title=title
    )
    return figure


def _of_dropout(found: Rows) -> Figure:
    figure = new_figure(6.4, 4.2)
    axes = figure.subplots()
    wanted = [
        row | {"rate": _rate(row["setting"]), "name": f"{row['mechanism']}, {row['level']:g} sigma"}
        for row in found
        if row["setting"] != NO_DROPOUT and math.isfinite(row["test_loss"])
    ]
    looks = looks_of(row["name"] for row in wanted)
    for (label,), members in groups(wanted, "name"):
        ordered = sorted(members, key=lambda row: row["rate"])
        x, y = [100 * row["rate"] for row in ordered], [row["test_loss"] for row in ordered]
        axes.plot(x, y, label=label, markersize=5, linewidth=1.2, **looks[label])
    axes.set_xlabel("nodes out of a step, %")
    axes.set_ylabel("least test RMSE (stars)")
    if wanted:
        figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure


def _rate(setting: str) -> float:
    """Return the rate of "dropout 25%"."""
    return float(setting.split()[1].rstrip("%")) / 100


def paragraph(rows: Rows, found: Rows, settings: ZipDlSettings) -> str:
    """Tell the results beside what is published."""
    table = settings.training
    at = {(row["setting"], row["mechanism"], row["level"]): row for row in found}
    free = at[NO_DROPOUT, training.NONE, 0.0]
    lines = [
        f"MovieLens small on a random {settings.network.degree}-regular graph of "
        f"{settings.network.nodes} nodes, users dealt to nodes, all factors shared, gradients not "
        f"clipped. Reduced against the paper: films of at least {table.least_ratings} ratings, "
        f"{table.factors} factors, {table.steps} steps of size {table.step_size:g}, "
        f"{table.seeds} seeds, {settings.attack.victims} victims of each, {settings.attack.models} "
        "messages of each, and a classifier that is logistic in the logarithms of losses where the "
        "paper trains a small network. The paper's model has no mean rating in its middle either. "
        "So no level of RMSE or AUC is comparable with its own. Nothing here is a guarantee: no "
        "account holds without a clip, and a stronger attack would find more.",
        f"Without noise: RMSE {free['test_loss']:.3f}, threshold AUC {_of(free, 'threshold_auc')}, "
        f"classifier AUC {_of(free, 'classifier_auc')} (published: 1.11, 60.20 % and none told).",
    ]
    here = [row for row in found if row["setting"] == NO_DROPOUT]
    for (name,), ordered in groups(here, "mechanism"):
        if name == training.NONE:
            continue
        told = [
            f"{row['level']:g}: "
            + (
                f"{row['test_loss']:.3f}, {_of(row, 'threshold_auc')}, {_of(row, 'classifier_auc')}"
                if math.isfinite(row["test_loss"])
                else "diverged"
            )
            for row in ordered
        ]
        lines.append(f"{name}, noise over sigma: RMSE, both AUC: {'; '.join(told)}.")
    lines.append(_dominance(here))
    lines.append(_dropouts(found, settings.dropout.clip))
    return "\n\n".join(line for line in lines if line)


def _of(row: Record, name: str) -> str:
    return "none" if row[name] is None else f"{100 * row[name]:.2f} %"


def _dominance(here: Rows) -> str:
    """Tell which has less RMSE and AUC at equal standard deviation of a message's noise."""
    told = []
    by_name = {name: {row["level"]: row for row in of} for (name,), of in groups(here, "mechanism")}
    own = by_name.pop(training.ZIP_DL, {})
    for name, other in by_name.items():
        if name == training.NONE:
            continue
        both = [(own[level], other[level]) for level in own if level in other]
        loss = sum(a["test_loss"] <= b["test_loss"] for a, b in both)
        known = [(a, b) for a, b in both if None not in (a["classifier_auc"], b["classifier_auc"])]
        auc = sum(a["classifier_auc"] <= b["classifier_auc"] for a, b in known)
        told.append(
            f"At equal standard deviation of what is added to a message, Zip-DL's RMSE is at most "
            f"that of {name} at {loss} of {len(both)} levels, and its classifier AUC at {auc} of "
            f"{len(known)}. Noise that cancels costs less; it also hides less from who sees all "
            "messages of a node, which none of these attackers does."
        )
    return " ".join(told)


def _dropouts(found: Rows, clip: float) -> str:
    told = []
    dropped = [row for row in found if row["setting"] != NO_DROPOUT]
    for (mechanism, level), members in groups(dropped, "mechanism", "level"):
        by_rate = {_rate(row["setting"]): row["test_loss"] for row in members}
        if len(by_rate) > 1:
            values = ", ".join(
                f"{rate:.0%} {loss:.3f}" if math.isfinite(loss) else f"{rate:.0%} diverged"
                for rate, loss in sorted(by_rate.items())
            )
            told.append(f"{mechanism} at {level:g}: {values}")
    if not told:
        return ""
    return (
        f"**Dropout**, RMSE by share of nodes out of a step, gradients clipped at {clip:g}: "
        f"{'; '.join(told)}. Nodes that are out still take their own gradient steps here, and are "
        "out independently of the step before."
    )


EXPERIMENT = Experiment(
    title="Zip-DL: what noise on messages costs in rating films, and what attacks find out",
    settings=ZipDlSettings,
    columns=training.COLUMNS,
    units=units,
    run=training.run,
    summary=summary,
    pictures=pictures,
    paragraph=paragraph,
    version=2,
)
