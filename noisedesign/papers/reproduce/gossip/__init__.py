"""Koskela and Kulkarni: what one node's messages tell of another, and what that costs in risk.

Figures 1 and 2 show one pair of nodes of a graph each; here are many, with quantiles. Theorem 17
bounds the excess risk of training with the noise that such a sensitivity asks for, up to constants;
here is the risk that was measured, and the theorem's terms beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from noisedesign.files.schema import Table
from noisedesign.papers.reproduce.experiment import (
    Count,
    Experiment,
    Positive,
    Record,
    Settings,
    Unit,
)
from noisedesign.papers.reproduce.gossip import risk, views
from noisedesign.papers.reproduce.pictures import loss_against_epsilon

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Graphs(Table):
    """Random graphs: of what kind, of how many nodes, and how many of each."""

    kinds: Annotated[list[Literal["erdos-renyi", "preferential-attachment"]], Field(min_length=1)]
    nodes: Annotated[int, Field(ge=8)]
    p: Annotated[float, Field(gt=0, le=1)]
    links: Count
    draws: Count


class ViewsTable(Graphs):
    """Part one: ``victims`` neighbours and as many others of each of some observed nodes."""

    observers: Count
    victims: Count
    horizons: Annotated[list[Count], Field(min_length=1)]


class RiskTable(Graphs):
    """Part two: ridge logistic regression over the same kinds of graphs."""

    horizons: Annotated[list[Count], Field(min_length=1)]
    steps: Annotated[list[Literal["constant", "tuned"]], Field(min_length=1)]
    epsilons: Annotated[list[Annotated[float, Field(gt=0, lt=1)]], Field(min_length=1)]
    delta: Annotated[float, Field(gt=0, lt=1)]
    records: Annotated[int, Field(ge=2)]
    dimension: Count
    ridge: Positive
    spread: Annotated[float, Field(ge=0)]
    seeds: Annotated[int, Field(ge=2)]


class GossipSettings(Settings):
    """Keys of ``problems/papers/gossip.toml``."""

    views: ViewsTable
    risk: RiskTable


def units(settings: GossipSettings) -> list[Unit]:
    """An observed node of a graph each, then a graph and a horizon each."""
    return [
        *({"part": "views"} | unit for unit in views.units(settings.views)),
        *({"part": "risk"} | unit for unit in risk.units(settings.risk)),
    ]


def run(unit: Unit) -> list[Record]:
    """Rows of one unit; columns of the other part are empty."""
    part = {"views": views.run, "risk": risk.run}[unit["part"]]
    return [dict.fromkeys(COLUMNS) | {"part": unit["part"]} | row for row in part(unit)]


def _of(part: str, rows: Sequence[Record]) -> list[Record]:
    return [row for row in rows if row["part"] == part]


def summary(rows: Sequence[Record], _: GossipSettings) -> list[Record]:
    """The excess risk; the sensitivities are in ``sensitivity.csv``."""
    return risk.summary(_of("risk", rows))


def tables(rows: Sequence[Record], _: GossipSettings) -> Mapping[str, Sequence[Record]]:
    """Quantiles over pairs of nodes, and how the risk grows with the horizon."""
    return {
        "sensitivity.csv": views.quantiles(_of("views", rows)),
        "growth.csv": risk.growth(_of("risk", rows)),
    }


def pictures(
    rows: Sequence[Record], found: Sequence[Record], settings: GossipSettings
) -> Mapping[str, Figure]:
    """Figures 1 and 2, and the risk against epsilon and the number of steps."""
    quantiles = views.quantiles(_of("views", rows))
    longest = [row for row in found if row["horizon"] == max(settings.risk.horizons)]
    by_epsilon = loss_against_epsilon(longest, ylabel="mean excess risk over the run", log=True)
    by_epsilon.suptitle(risk.CALIBRATED)
    return {
        "sensitivity": views.growth(quantiles, nodes=settings.views.nodes),
        "spectral-bound": views.excess(quantiles),
        "risk-by-epsilon": by_epsilon,
        "risk-by-steps": risk.by_horizon(found, epsilon=max(settings.risk.epsilons)),
    }


def paragraph(rows: Sequence[Record], found: Sequence[Record], settings: GossipSettings) -> str:
    """What came out of both parts."""
    told = views.paragraph(views.quantiles(_of("views", rows)), nodes=settings.views.nodes)
    return f"{told}\n\n{risk.paragraph(found, settings.risk)}"


COLUMNS = {"part": str, **views.COLUMNS, **risk.COLUMNS}

EXPERIMENT = Experiment(
    title="Privacy of gossip averaging (Koskela and Kulkarni): one node's view, and excess risk",
    settings=GossipSettings,
    columns=COLUMNS,
    units=units,
    run=run,
    summary=summary,
    tables=tables,
    pictures=pictures,
    paragraph=paragraph,
)
