"""Koskela and Kulkarni: one node's view of others over many pairs, and excess risk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from noisedesign.files.schema import Table
from noisedesign_lab.papers.reproduce import keys
from noisedesign_lab.papers.reproduce.experiment import (
    Experiment,
    Part,
    Parts,
    Record,
    Rows,
    Settings,
    Unit,
)
from noisedesign_lab.papers.reproduce.gossip import risk, views
from noisedesign_lab.papers.reproduce.pictures import Pictures


class Graphs(Table):
    """Random graphs: of what kind, of how many nodes, and how many of each."""

    kinds: Annotated[list[Literal["erdos-renyi", "preferential-attachment"]], Field(min_length=1)]
    nodes: Annotated[int, Field(ge=8)]
    p: Annotated[float, Field(gt=0, le=1)]
    links: keys.Count
    draws: keys.Count


class ViewsTable(Graphs):
    """Part one: ``victims`` neighbours and as many others of each of some observed nodes."""

    observers: keys.Count
    victims: keys.Count
    horizons: keys.Counts


class RiskTable(Graphs):
    """Part two: ridge logistic regression over the same kinds of graphs."""

    horizons: keys.Counts
    steps: Annotated[list[Literal["constant", "tuned"]], Field(min_length=1)]
    epsilons: Annotated[list[Annotated[float, Field(gt=0, lt=1)]], Field(min_length=1)]
    delta: keys.Share
    records: Annotated[int, Field(ge=2)]
    dimension: keys.Count
    ridge: keys.Positive
    spread: keys.Nonnegative
    seeds: Annotated[int, Field(ge=2)]


class GossipSettings(Settings):
    """Keys of ``problems/papers/gossip.toml``."""

    views: ViewsTable
    risk: RiskTable


PARTS = Parts(
    views=Part(views.COLUMNS, views.units, views.run), risk=Part(risk.COLUMNS, risk.units, risk.run)
)


def run(unit: Unit) -> list[Record]:
    """Return the rows of one unit."""
    return PARTS.run(unit)


def summary(rows: Rows, _: GossipSettings) -> list[Record]:
    """The excess risk; the sensitivities are in ``sensitivity.csv``."""
    return risk.summary(PARTS.rows("risk", rows))


def tables(rows: Rows, _: GossipSettings) -> Mapping[str, Rows]:
    """Quantiles over pairs of nodes, and how the risk grows with the horizon."""
    return {
        "sensitivity.csv": views.quantiles(PARTS.rows("views", rows)),
        "growth.csv": risk.growth(PARTS.rows("risk", rows)),
    }


def pictures(rows: Rows, found: Rows, settings: GossipSettings) -> Pictures:
    """Figures 1 and 2, and the risk against the number of steps."""
    quantiles = views.quantiles(PARTS.rows("views", rows))
    return {
        "sensitivity": views.growth(quantiles, nodes=settings.views.nodes),
        "spectral-bound": views.excess(quantiles),
        "risk-by-steps": risk.by_horizon(found, epsilon=max(settings.risk.epsilons)),
    }


def paragraph(rows: Rows, found: Rows, settings: GossipSettings) -> str:
    """Tell the results of both parts."""
    told = views.paragraph(views.quantiles(PARTS.rows("views", rows)), nodes=settings.views.nodes)
    grown = risk.growth(PARTS.rows("risk", rows))
    return f"{told}\n\n{risk.paragraph(found, grown, settings.risk)}"


EXPERIMENT = Experiment(
    title="Privacy of gossip averaging (Koskela and Kulkarni): one node's view, and excess risk",
    settings=GossipSettings,
    columns=PARTS.columns,
    units=PARTS.units,
    run=run,
    summary=summary,
    tables=tables,
    pictures=pictures,
    paragraph=paragraph,
)
