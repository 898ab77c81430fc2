"""The tables and the words about the loss of last models say what is stored beside the page."""

from __future__ import annotations

import csv
from collections.abc import Callable

import numpy as np
import pytest

from tests.support import ROOT, pages

OURS = "kronecker-loss, least noise, falling"  # all that the page has, but for optimizers
Costs = dict[tuple[str, str], dict[str, dict[str, float]]]

with (ROOT / "docs" / "experiments" / "loss-costs.csv").open(encoding="utf-8", newline="") as file:
    STORED = list(csv.DictReader(file))


def of_loss(variant: str = "") -> Costs:
    """What noise costs, by setting and budget, and by mechanism."""
    found: Costs = {}
    for row in STORED:
        if row["variant"] == variant:
            setting = row["setting"].removesuffix(f", {variant}")
            cells = {
                name: float(cell) for name, cell in row.items() if pages.number(cell) is not None
            }
            found.setdefault((setting, row["mu"]), {})[row["mechanism"]] = cells
    return found


def costs_in(of: dict[str, dict[str, float]], *names: str) -> str:
    return " | ".join(f"{of[name]['cost']:.4f}" for name in names)


def short(ratio: float) -> str:
    return f"{ratio:.2f}".removeprefix("0")


def loss_lines() -> list[str]:
    """A setting and a budget each, with how the best compares."""
    constant = ("ldp", "mafalda", "loss-capped", "kronecker-loss", "kronecker-loss, least noise")
    falling = ("ldp, falling", "mafalda, falling", "kronecker-loss, falling", OURS)
    lines = []
    for (setting, mu), of in of_loss().items():
        ratios = (of[OURS][f"over_{name}"] for name in ("mafalda", "ldp", "mafalda_alike"))
        cells = [costs_in(of, *constant, *falling), *map(short, ratios)]
        lines.append(f"| {setting} | {float(mu):g} | {' | '.join(cells)} |")
    return lines


def ratios_of(name: str, over: str) -> list[float]:
    return [of[name][over] for of in of_loss().values() if over in of[name]]


def lever_lines() -> list[str]:
    """A mechanism each: the median, the ends and how many are within .5 or .4."""
    lines = []
    for name in next(iter(of_loss().values())):
        kind, *added = name.split(", ")
        cells = [kind, "least noise" * ("least noise" in added), "falling" * ("falling" in added)]
        for over, bar in (("mafalda", 0.5), ("ldp", 0.4)) * 2:
            ratios = ratios_of(name, f"over_{over}" + "_alike" * (len(cells) > 4))
            ends = f"{short(min(ratios))} to {short(max(ratios))}"
            within = sum(ratio <= bar for ratio in ratios)
            cells.append(f"{short(float(np.median(ratios)))}, {ends}, {within}")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def optimizer_lines() -> list[str]:
    kinds = ("ldp", "mafalda", "loss-capped", "kronecker-loss")
    names = [kind + falling for falling in ("", ", falling") for kind in kinds]
    return [
        f"| {setting} | {float(mu):g} | {optimizer} | {costs_in(of, *names)} |"
        for optimizer in ("momentum", "adamw")
        for (setting, mu), of in of_loss(optimizer).items()
    ]


def mean_lines() -> list[str]:
    """The models of the nodes, and below them their mean."""
    constant = ("ldp", "mafalda", "kronecker-loss, least noise")
    names = (*constant, *(f"{name}, falling" for name in constant[1:]))
    each, lines = of_loss(), []
    for key, of in of_loss("mean model").items():
        lines.append(f"| {key[0]} | every node's | {costs_in(each[key], *names)} |")
        lines.append(f"| {key[0]} | their mean | {costs_in(of, *names)} |")
    return lines


ADDED = ("", ", falling", ", least noise", ", least noise, falling")


def seed_lines() -> list[str]:
    """Noise that a dealer deals, and below it that of seeds which neighbours share."""
    each, lines = of_loss(), []
    for key, of in of_loss("pairwise seeds").items():
        for told, source, kind in (
            ("dealt", each[key], "kronecker-loss"),
            ("seeds of neighbours", of, "edge-local-loss"),
        ):
            lines.append(
                f"| {key[0]} | {told} | {costs_in(source, *(kind + added for added in ADDED))} |"
            )
    return lines


def has_all_lines(page: str, lines: list[str]) -> bool:
    """Whether a table of a page has these lines, and no other."""
    assert lines
    return "\n" + "\n".join(lines) + "\n\n" in pages.read(page)


@pytest.mark.parametrize(
    "lines", [loss_lines, lever_lines, optimizer_lines, mean_lines, seed_lines]
)
def test_tables_of_the_loss_of_last_models(lines: Callable[[], list[str]]) -> None:
    assert has_all_lines("docs/experiments/loss.md", lines())


def test_results_rank_by_the_loss_of_last_models() -> None:
    """Means over all settings, the mechanism whose best lever costs least first."""
    head, *rows = pages.table_with(pages.read("docs/results.md"), "mechanism", "constant step")
    assert len(rows) == len({name.partition(", ")[0] for of in of_loss().values() for name in of})
    shown = {row[0]: row[1:] for row in rows}
    for kind, told in (
        ("ldp", "independent noise"),
        ("mafalda", "optimum of every iterate (Mafalda)"),
    ):
        for cell, added in zip(
            shown[told], ("", ", least noise", ", falling", ", least noise, falling"), strict=True
        ):
            assert float(cell) == pytest.approx(
                np.mean([of[kind + added]["cost"] for of in of_loss().values()]), abs=6e-5
            )
    assert head[1:] == [
        "constant step",
        "constant, W of least noise",
        "falling step",
        "falling, W of least noise",
    ]
    least = [min(float(cell) for cell in row[1:] if cell) for row in rows]
    assert least == sorted(least)
    assert shown["optimum of the loss"][1] == ""  # which was not run


DESIGNS = ("loss-capped", "kronecker-loss")


def least_and_most(ratios: list[float]) -> str:
    return f"{short(min(ratios))} to {short(max(ratios))}"


def between(name: str, other: str, graphs: tuple[str, ...] = ("",)) -> list[float]:
    """Costs of one mechanism over those of another, on graphs whose names begin so."""
    return [
        of[name]["cost"] / of[other]["cost"]
        for (setting, _), of in of_loss().items()
        if setting.startswith(graphs)
    ]


def within(ratios: list[float], bar: float) -> str:
    return NUMBERS[sum(ratio <= bar for ratio in ratios)]


NUMBERS = (
    *("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "all twelve"),
)


def fragments() -> list[str]:
    """What the page says in words, written from the stored costs."""
    ours, fell = ratios_of(OURS, "over_mafalda"), ratios_of("mafalda, falling", "over_mafalda")
    alike, over_ldp = ratios_of(OURS, "over_mafalda_alike"), ratios_of(OURS, "over_ldp")
    constant, capped = (
        (ratios_of(name, "over_mafalda"), ratios_of(name, "over_ldp"))
        for name in ("kronecker-loss, least noise", "loss-capped")
    )
    in_time = ratios_of("loss-capped, falling", "over_mafalda_alike")
    every = ratios_of("kronecker, least noise, falling", "over_mafalda_alike")
    mixed = [ratios_of(f"loss-mixed{f}", "over_mafalda_alike") for f in ("", ", falling")]
    of_loss_alone = [between(f"kronecker-loss{f}", f"kronecker{f}") for f in ("", ", falling")]
    large, small = (
        between("kronecker-loss, least noise", "kronecker-loss", on)
        + between("kronecker-loss, least noise, falling", "kronecker-loss, falling", on)
        for on in (("ego",), ("florentine", "karate"))
    )
    earlier = [
        [
            of["kronecker-loss, least noise"]["cost_alike"] / of[name]["cost_alike"]
            for of in of_loss().values()
        ]
        for name in ("mafalda", "ldp")
    ]
    momentum, adamw = (
        {
            name + falling: least_and_most(
                [of[name + falling][f"over_{other}_alike"] for of in of_loss(variant).values()]
            )
            for name, other in (("mafalda", "ldp"), *((name, "mafalda") for name in DESIGNS))
            for falling in ("", ", falling")
        }
        for variant in ("momentum", "adamw")
    )
    over_plain = [
        of["mafalda"]["cost"] / of_loss()[key]["mafalda"]["cost"]
        for key, of in of_loss("momentum").items()
    ]
    each, means = of_loss(), of_loss("mean model")
    saved = [of["mafalda"]["cost"] / each[key]["mafalda"]["cost"] for key, of in means.items()]
    of_mean, of_mean_alike = (
        [of[OURS][f"over_mafalda{alike}"] for of in means.values()] for alike in ("", "_alike")
    )
    pairwise = [
        of[f"edge-local-loss{added}"]["cost"] / each[key][f"kronecker-loss{added}"]["cost"]
        for key, of in of_loss("pairwise seeds").items()
        for added in ADDED
    ]
    return [
        f"Seeds of neighbours cost {least_and_most(pairwise)} of what dealt noise costs",
        f"costs {least_and_most(over_plain)} of what it costs without momentum, and "
        f"{momentum['mafalda']} of independent noise",
        f"({momentum['loss-capped']} of Mafalda's, {momentum['loss-capped, falling']} at a falling",
        f"({momentum['kronecker-loss']}, and {momentum['kronecker-loss, falling']} at a falling",
        f"costs {adamw['mafalda']} of independent noise, {adamw['mafalda, falling']} at a falling",
        f"noise across nodes costs {adamw['kronecker-loss']} of Mafalda's, "
        f"{adamw['kronecker-loss, falling']} at a falling step, and the capped design over time "
        f"{adamw['loss-capped']}, and {adamw['loss-capped, falling']} at a falling step",
        f"Mafalda's noise at a constant step {least_and_most(saved)} of what every node's own",
        f"costs it {least_and_most(of_mean)} of Mafalda's as published and "
        f"{least_and_most(of_mean_alike)} of Mafalda's with the same falling step",
        f"costs {least_and_most(ours)} of what Mafalda's costs as published and "
        f"{least_and_most(over_ldp)} of what independent noise costs**: at most .5 of the "
        f"former in {within(ours, 0.5)} settings, and .4 of the latter in {within(over_ldp, 0.4)}",
        f"{least_and_most(alike)} of what Mafalda's costs, at most .5 in {within(alike, 0.5)} of",
        f"{least_and_most(ratios_of(OURS, 'over_ldp_alike'))} of what independent noise does",
        f"{least_and_most(constant[0])} of what Mafalda's costs and {least_and_most(constant[1])} "
        f"of what independent noise does, at most .5 in {within(constant[0], 0.5)} and .4 in "
        f"{within(constant[1], 0.4)} settings",
        f"the ratios are {least_and_most(earlier[0])} and {least_and_most(earlier[1])}, at most .5 "
        f"in {within(earlier[0], 0.5)} and .4 in {within(earlier[1], 0.4)}",
        f"{least_and_most(capped[0])} and {least_and_most(capped[1])}, at most .5 in "
        f"{within(capped[0], 0.5)} settings and .4 in {within(capped[1], 0.4)}",
        f"Mafalda's noise then costs {least_and_most(fell)} of what it costs with a constant one",
        f"the capped design over time costs {least_and_most(in_time)} of Mafalda's",
        f"for every iterate costs {least_and_most(every)} of Mafalda's",
        f"it costs {least_and_most(of_loss_alone[0])} of designs for every iterate at a constant "
        f"step, and {least_and_most(of_loss_alone[1])} at a falling one",
        f"for the loss costs {least_and_most(large)} of what it costs under Metropolis-Hastings "
        f"weights, on the small graphs {least_and_most(small)}",
        f"`loss-mixed` costs {least_and_most(mixed[0])} of Mafalda's at a constant step, and "
        f"{least_and_most(mixed[1])} at a falling one",
    ]


def test_words_about_the_loss_of_last_models() -> None:
    text = " ".join(pages.read("docs/experiments/loss.md").split())
    for fragment in fragments():
        assert fragment in text


def test_a_falling_step_saves_more_than_designs_over_time_at_a_constant_one() -> None:
    """As the guide says: independent noise aside, in every setting."""
    in_time = ("last-iterate", "loss", "loss-capped", "loss-mixed")
    for of in of_loss().values():
        assert of["mafalda, falling"]["cost"] < min(of[name]["cost"] for name in in_time)
