"""Tables of the pages say where their numbers come from, and those of results that are stored, or
that a command prints, are these numbers."""

from __future__ import annotations

import csv
import itertools
import math
import re
import shlex
from functools import cache
from typing import Any

import numpy as np
import pytest

from noisedesign import cli
from noisedesign_lab.papers.reproduce import load_settings, ours, whisper
from tests.support import ROOT, numbers, pages

COVERED = ("README.md", "docs/")
WRITTEN = ("docs/guides/collection.md", "docs/guides/trainers.md", "docs/errata.md")
"""Tools write the tables of the first two, and ``test_collection_tool`` compares those of the
first, ``test_trainers_table`` that of the second; every row of the last names its test. Tables of
stored measurements are compared by ``test_measured``."""

FEWEST = 4
"""Decimal numbers of a table that has to say where they come from."""


def covered() -> list[str]:
    names = [page.relative_to(ROOT).as_posix() for page in pages.PAGES]
    return [name for name in names if name.startswith(COVERED) and name not in WRITTEN]


@cache
def of_kind(kind: str) -> list[numbers.Marked]:
    found = [one for page in covered() for one in numbers.marked(page, pages.read(page))]
    return [one for one in found if one.kinds == [kind]]


def test_every_table_of_numbers_says_where_they_come_from() -> None:
    for page in covered():
        text = pages.read(page)
        assert not numbers.unmarked(text, FEWEST), f"{page}: put <!-- numbers: ... --> above it"
        for one in numbers.marked(page, text):
            assert len(one.kinds) == 1, f"{page}: one of {numbers.KINDS}, got {one.says}"


@pytest.mark.parametrize("one", of_kind("stored"), ids=str)
def test_numbers_are_those_that_are_stored(one: numbers.Marked) -> None:
    source = numbers.stored(one.says["stored"], one.says.get("where", {}))
    assert not numbers.faults(one.table, source, one.says)


@pytest.mark.slow
@pytest.mark.parametrize("command", sorted({one.says["printed"] for one in of_kind("printed")}))
def test_numbers_are_those_that_the_command_prints(command: str) -> None:
    source = numbers.printed(command)
    for one in of_kind("printed"):
        if one.says["printed"] == command:
            assert not numbers.faults(one.table, source, one.says), one


def test_commands_and_tests_that_are_named_exist() -> None:
    tests = {
        name
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", pages.read(file), re.MULTILINE)
    }
    for kind in ("printed", "measured"):
        for one in of_kind(kind):
            program, *words = shlex.split(one.says[kind])
            if program == "noisedesign":
                assert words[0] in cli.commands.commands, one
            else:
                assert (program, words[0]) == ("python", "-m"), one
                assert (ROOT / f"{words[1].replace('.', '/')}.py").exists(), one
    for one in of_kind("test"):
        assert set(one.says["test"].split(", ")) <= tests, one


# --- the comparison itself ------------------------------------------------------------------------

PAGE = """
<!-- numbers: {stored = "x.csv", words = {ours = "kronecker"}} -->

| graph | `ldp` | ours |
|---|---|---|
| ring, left out | 1.00 | **0.25** (.20 to .3) |
| path | 97.5 % | 1,234 |
"""
SOURCE = [
    ("ring", "left out", "ldp", "1.0"),
    ("ring", "left out", "kronecker", "0.2461", "0.2", "0.34"),
    ("path", "ldp", "0.9751"),
    ("path", "kronecker", "1233.7"),
]


def test_a_number_that_is_not_in_its_row_and_column_is_found() -> None:
    (one,) = numbers.marked("page", PAGE)
    assert numbers.faults(one.table, SOURCE, one.says) == []
    for shown, other in (
        ("0.25", "0.24"),
        ("97.5 %", "97.4 %"),
        (".3)", ".4)"),
        ("1,234", "1,233"),
    ):
        wrong = one.table.replace(shown, other)
        (fault,) = numbers.faults(wrong, SOURCE, one.says)
        assert other.strip(")") in fault
    assert numbers.faults(one.table.replace("0.25", "1.00"), SOURCE, one.says)  # that of ldp
    assert numbers.faults(one.table.replace("path", "star"), SOURCE, one.says)
    assert numbers.faults("| a | b |\n|---|---|\n| ring | x |\n", SOURCE, {})
    assert numbers.unmarked(PAGE, 4) == []
    assert numbers.unmarked(PAGE.replace("numbers:", "number:"), 4) == ["| graph | `ldp` | ours |"]


# --- words that are numbers of stored results ---------------------------------------------------


def told(page: str) -> str:
    return " ".join(pages.read(f"docs/experiments/{page}.md").split())


def records(name: str) -> list[dict[str, str]]:
    with (ROOT / "docs" / "experiments" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_words_about_mafalda() -> None:
    """Mean gains over the grid, and the epsilon of a loss, interpolated in logarithms."""
    rows, text = records("mafalda-summary"), told("mafalda")

    def gains(setting: str) -> list[float]:
        of = [r for r in rows if r["setting"] == setting and r["mechanism"] == "mafalda"]
        return [float(row["gain"]) for row in of]

    def needed(setting: str, mechanism: str, loss: float = 0.75) -> float:
        of = [r for r in rows if r["setting"] == setting and r["mechanism"] == mechanism]
        x = [math.log(float(row["epsilon"])) for row in of]
        y = [math.log(float(row["test_loss"])) for row in of]
        return math.exp(np.interp(-math.log(loss), [-v for v in y], x))

    ego = "Ego, b = 16, row-normalized"
    assert f"The mean gain over the published grid is {np.mean(gains(ego)):.0f} %" in text
    ldp, own = needed(ego, "ldp"), needed(ego, "mafalda")
    assert f"takes `ldp` ε = {ldp:.2f} and Mafalda {own:.2f}, {ldp / own:.2f} times less" in text
    text_of = gains(longer := "Ego, b = 19, row-normalized")
    ldp, own = needed(longer, "ldp"), needed(longer, "mafalda")
    assert f"it is {ldp:.2f} and {own:.2f}, {ldp / own:.2f} times less" in text
    shares = ", ".join(f"{gain:.0f} %" for gain in text_of)
    assert f"then {np.mean(text_of):.0f} % ({shares.replace('-0', '0')})" in text
    of_w = {
        name: needed("Ego, b = 16, Metropolis", name) for name in ("ldp", "mafalda", "kronecker")
    }
    assert (
        f"takes `ldp` ε = {of_w['ldp']:.2f}, Mafalda {of_w['mafalda']:.2f} "
        f"({of_w['ldp'] / of_w['mafalda']:.2f} times less) and `kronecker` "
        f"{of_w['kronecker']:.2f} ({of_w['ldp'] / of_w['kronecker']:.2f} times less)"
    ) in text


def test_words_about_random_batches() -> None:
    """Errors at delta = 1e-5 over those of batches in any order, graph by graph."""
    found = {
        (r["setting"], r["adjacency"], r["mechanism"], r["account"], r["epsilon"]): r["over_ldp"]
        for r in records("balls-in-bins-noise")
        if r["delta"] == "1e-05"
    }
    text = told("balls-in-bins")

    def ratios(setting: str, record: str, *mechanisms: tuple[str, str]) -> list[float]:
        (a, b) = ((setting, record, *mechanism) for mechanism in mechanisms)
        return [
            float(found[*a, e]) / float(found[*b, e]) for e in ("0.5", "1.0", "2.0", "4.0", "8.0")
        ]

    searched, square_root = ("amplified", "random"), ("bsr-8", "random")
    of_optimum = [
        ratios("florentine", record, searched, ("mafalda", "fixed"))
        for record in ("zero-out", "replace")
    ]
    left_out, replaced = ([f"{100 * x:.0f}" for x in (min(v), max(v))] for v in of_optimum)
    assert f"leaves {left_out[0]} to {left_out[1]} % of the error of the certified optimum" in text
    assert f"left out, and {replaced[0]} to {replaced[1]} % where it is replaced" in text
    more = [
        x - 1
        for record in ("zero-out", "replace")
        for x in ratios("florentine", record, square_root, searched)
    ]
    assert f"has {100 * min(more):.0f} to {100 * max(more):.0f} % more" in text


def test_words_about_losses_of_random_batches() -> None:
    """What noise costs, by graph and budget; a mechanism without a word has the fixed account."""
    lanes: dict[tuple[str, str], dict[str, tuple[float, float]]] = {}
    for r in records("balls-in-bins-costs"):
        of = lanes.setdefault((r["setting"], r["epsilon"]), {})
        of[r["mechanism"]] = float(r["error_over_ldp"]), float(r["cost"])
    text = told("balls-in-bins")
    pairs = [pair for of in lanes.values() for pair in itertools.combinations(of.values(), 2)]
    kept = sum((a[0] < b[0]) == (a[1] < b[1]) for a, b in pairs)
    assert (
        f"of {len(pairs)} pairs of mechanisms and accounts at equal ε, the one of less error costs "
        f"less in {kept}."
    ) in text
    for of in lanes.values():
        for name in of.keys() & {name.removesuffix(", random") for name in of if ", " in name}:
            assert of[f"{name}, random"][1] < of[name][1]
    times = [of["ldp"][1] / of["ldp, random"][1] for of in lanes.values()]
    assert (round(min(times)), round(max(times))) == (3, 9)  # in words on the page
    for (_, epsilon), of in lanes.items():
        searched, square_root = of["amplified, random"], of["bsr-8, random"]
        assert (searched[0] < square_root[0]) or float(epsilon) > 4
        assert (searched[1] > square_root[1]) or float(epsilon) > 4


def test_words_about_gossip() -> None:
    """The risk after the last step, at epsilon = 0.8, from one horizon to another."""
    text, rows, steps = told("gossip"), records("gossip-risk"), records("gossip-growth")
    risks = {(r["setting"], r["mechanism"]): r for r in rows if r["epsilon"] == "0.8"}
    places = ("Erdős–Rényi", "preferential attachment")

    def factors(step: str, short: int, long: int, *mechanisms: str) -> list[float]:
        found = [
            [risks[f"{place}, {step} step, T = {t}", name]["last_risk"] for t in (short, long)]
            for place in places
            for name in mechanisms
        ]
        return [float(b) / float(a) for a, b in found]

    names = ("central", "others' views", "one view", "LDP")
    constant = factors("constant", 30, 1000, *names)
    assert f"by factors of {constant[0]:.0f} (central) to {max(constant):.0f}" in text
    terms = [
        float(risks[f"Erdős–Rényi, constant step, T = {t}", "Theorem 17, constants 1"]["test_loss"])
        for t in (30, 1000)
    ]
    assert f"its terms fall to {terms[1] / terms[0]:.3f} of what they were" in text
    between = {
        (r["place"], r["mechanism"]): [float(r[k]) for k in ("factor", "low", "high")]
        for r in steps
        if (r["from"], r["to"], r["epsilon"]) == ("30", "1000", "0.8")
    }
    up = [between[f"{place}, tuned step", name][0] for place in places for name in names]
    _, low, high = between["Erdős–Rényi, tuned step", "central"]
    logarithm = math.log(1000) / math.log(30)
    assert (
        f"multiplied by {min(up):.1f} to {max(up):.1f} from T = 30 to 1000 (central: {low:.2f} to "
        f"{high:.2f}), where log(T) is by {logarithm:.2f}"
    ) in text
    ends = [between[f"{place}, tuned step", name][1:] for place in places for name in names]
    assert all(low < logarithm < high for low, high in ends)
    published = "equations (5.4), (5.5)"
    assert (
        f"to {between['Erdős–Rényi, tuned step', published][0]:.2f}, is the risk of (5.4)" in text
    )

    def of(name: str, key: str, step: str = "constant", t: int = 1000, place: int = 0) -> float:
        return float(risks[f"{places[place]}, {step} step, T = {t}", name][key])

    most, least = (
        of(published, "squared_sensitivity", t=t) / of("LDP", "squared_sensitivity", t=t)
        for t in (300, 1000)
    )
    assert f"asks for is {least:.1f} times what protects from a reader" in text
    assert f"{most:.0f} times at T = 300" in text
    cost = of(published, "test_loss") / of("LDP", "test_loss")
    assert f"one view costs {cost:.0f} times the risk of LDP" in text
    others, own = (
        [
            of(n, "test_loss", "tuned", place=k) / of("LDP", "test_loss", "tuned", place=k)
            for k in (0, 1)
        ]
        for n in ("others' views", "one view")
    )
    assert "step, {:.2f} and {:.2f} of what LDP costs".format(*others) in text
    assert {f"{share:.2f}" for share in own} == {"0.99"}


def test_words_about_ours_are_written_from_the_stored_results() -> None:
    """All but the comments below them, which speak of the same numbers."""
    _, settings = load_settings("ours")
    text = told("ours")

    def numeric(row: dict[str, str]) -> dict[str, Any]:
        values = {key: pages.number(cell) for key, cell in row.items()}
        return {k: (cell or None) if values[k] is None else values[k] for k, cell in row.items()}

    costs = [numeric(row) for row in records("ours-costs")]
    written = ours._of_observers([numeric(row) for row in records("ours-observers")])
    for paragraph in [*written.split("\n\n"), *ours._of_training(costs, settings).split("\n\n")]:
        _, _, words = paragraph.rpartition(".** ")
        assert " ".join(words.split()) in text
    pairs = [
        ours.ordered([r for r in costs if (r["setting"], r["epsilon"]) == lane])
        for lane in {(r["setting"], 0.1) for r in costs}
    ]
    counted = [tuple(map(int, re.findall(r"\d+", one))) for one in pairs]
    of, kept = (sum(column) for column in zip(*(one[:2] for one in counted), strict=True))
    assert f"of {of} pairs, the one of less error costs less in {kept}." in text


def test_words_about_zip_dl() -> None:
    """RMSE and areas of the runs that are told beside what was published."""
    rows = {
        (r["setting"], r["mechanism"], float(r["level"])): {
            name: float(value)
            for name, value in r.items()
            if name[:4] in ("test", "thre", "clas") and value
        }
        for r in records("zip-dl-summary")
    }
    text = told("zip-dl")
    for key, phrase in {
        ("degree 4, 5,000 steps", "none", 0.0): "RMSE is {test_loss:.2f}, the mean AUC over "
        "messages {threshold_auc_mean:.1%} and that of the last message {threshold_auc:.1%}",
        ("as published", "none", 0.0): "graph*: {test_loss:.2f}, {threshold_auc:.1%} at the end "
        "and {threshold_auc_mean:.1%} in the mean",
        ("as published", "zip-dl", 256.0): "{test_loss:.2f}, {threshold_auc:.1%} "
        "({threshold_auc_mean:.1%} in the mean), {classifier_auc:.1%}",
    }.items():
        assert phrase.format(**rows[key]).replace("%", " %") in text
    zip_dl, many = rows["as published", "zip-dl", 256.0], "muffliato-10"
    levels = [rows["as published", many, level] for level in (64.0, 128.0, 256.0)]
    for of in levels:  # at 3 of 3
        for name in ("test_loss", "threshold_auc", "classifier_auc"):
            assert zip_dl[name] < of[name]
    assert "below those of Muffliato-10 at 3 of 3 levels" in text
    least = min(levels, key=lambda of: of["threshold_auc"])
    shares = [f"{100 * least[f'threshold_auc{end}']:.1f} %" for end in ("", "_low", "_high")]
    assert "its least is {} ({} to {}) at the last message".format(*shares) in text
    assert least["threshold_auc_low"] < 0.56535 < least["threshold_auc_high"]
    mean = min(of["threshold_auc_mean"] for of in levels)
    assert f"and {100 * mean:.1f} % in the mean over messages" in text
    assert (
        f"classifier: {100 * rows['as published', 'zip-dl', 64.0]['classifier_auc']:.1f} %" in text
    )


def test_words_about_batches_that_gain_little() -> None:
    gains = {
        (r["adjacency"], r["bins"], float(r["epsilon"])): 1 - float(r["variance"])
        for r in records("balls-in-bins-gains")
    }
    most = max(gains["zero-out", "b = 2", epsilon] for epsilon in (8, 16))
    assert f"left out saves {100 * most:.0f} % of its variance or less" in told("balls-in-bins")


def typed(name: str) -> list[dict[str, Any]]:
    """Records whose cells are numbers where they can be, and None where they are empty."""

    def value(cell: str) -> Any:
        try:
            return float(cell) if cell else None
        except ValueError:
            return cell

    return [{key: value(cell) for key, cell in row.items()} for row in records(name)]


def test_words_about_whisper() -> None:
    """The paragraphs that the experiment writes, of the stored results, and the words beside."""
    _, settings = load_settings("whisper")
    found, saved, text = typed("whisper-summary"), typed("whisper-saved"), told("whisper")
    written = [
        whisper.of_quadratics(found, settings),
        whisper.of_incomes("a9a by node", found, settings),
        whisper.of_incomes("a9a", found, settings),
    ]
    for paragraph in written:
        assert " ".join(paragraph.partition(".** ")[2].split()) in text
    for table in (whisper.table_of(saved), whisper.table_of_distances(found)):
        _, _, *lines = table.splitlines()
        for line in lines:
            assert line in pages.read("docs/experiments/whisper.md")
    shares = {
        (r["setting"][-3:], r["mechanism"]): r["saved"] for r in saved if "node" in r["setting"]
    }
    at = {key: f"{100 * value:.0f} %" for key, value in shares.items()}
    assert f"DECOR saves nothing, Whisper {at['0.2', 'whisper']} and {at['0.4', 'whisper']}" in text
    assert f"at p = 0.6 {at['0.6', 'decor']} and {at['0.6', 'whisper']}; at p" in text
    assert f"cross ({at['0.8', 'decor']} and {at['0.8', 'whisper']})" in text
    assert f"the densest graph has most ({at['= 1', 'whisper']})" in text
    sparse = "0.2", "0.4", "0.6", "0.8"
    whole = [shares[p, "whisper-horizon"] for p in sparse]
    assert f"saves {100 * min(whole):.0f} to {100 * max(whole):.0f} % on the graphs" in text
    assert f"a trusted server saves {at['0.2', 'cdp-n2']}" in text
    for (_, name), share in shares.items():
        assert (share < 0) == (name == "cdp-n") or abs(share) < 1e-9
    for p in sparse:
        assert abs(shares[p, "edge-local"] - shares[p, "whisper-horizon"]) < 0.03
    by_example = [r for r in found if r["setting"].startswith("a9a, ")]
    losses = [r["test_loss"] for r in by_example]
    wide = by_example[0]["test_loss_high"] - by_example[0]["test_loss_low"]
    assert (
        f"are {min(losses):.4f} to {max(losses):.4f}, and the interval of one is {wide:.3f}" in text
    )
    chosen = {
        (r["setting"], r["mechanism"]): r["step_size"]
        for r in found
        if r["epsilon"] == 10 and r["setting"].startswith("a9a by node")
    }
    for (setting, name), size in chosen.items():
        if name in ("ldp", "decor", "whisper"):
            dense = setting.endswith("p = 1") and name != "ldp"
            assert math.isclose(size, 0.01 if dense else 0.005)


def test_words_about_gains_of_mafalda() -> None:
    """Budget by budget, on both networks, and means over the grid with our own."""
    text = told("mafalda")
    gains = {
        (r["setting"], r["mechanism"], f"{float(r['epsilon']):.3g}"): float(r["gain"])
        for r in records("mafalda-summary")
        if r["gain"]
    }

    def shown(setting: str, *epsilons: str) -> list[str]:
        return [f"{gains[setting, 'mafalda', epsilon]:.0f}" for epsilon in epsilons]

    a, b, c = shown("Ego, b = 16, row-normalized", "2.25", "4.89", "11")
    assert f"the gain is {a} % (ε = 2.25), {b} % (4.89) and {c} % (11)" in text
    small = "0.397", "0.834", "2.25"
    a, b, c = shown("Florentine, b = 16, row-normalized", *small)
    assert f"Mafalda gains {a} % at ε = 0.397, {b} % at 0.834 and {c} % at 2.25" in text
    a, b, c = shown("Florentine, b = 19, row-normalized", *small)
    assert f"all gains are a little larger: {a} %, {b} % and {c} %" in text
    means = [
        np.mean([v for (s, m, _), v in gains.items() if (s, m) == ("Ego, b = 16, Metropolis", own)])
        for own in ("mafalda", "kronecker")
    ]
    assert f"gains over the grid are {means[0]:.0f} % and {means[1]:.0f} %" in text


def steps_of(network: str) -> tuple[dict[tuple[str, str], Any], dict[tuple[str, str], Any]]:
    """Rows at the published step and at tuned ones, by mechanism and epsilon."""
    fixed, tuned = (
        {
            (r["mechanism"], f"{r['epsilon']:.3g}"): r
            for r in typed("mafalda-summary")
            if r["setting"] == f"{network}{steps}"
        }
        for steps in ("", ", tuned steps")
    )
    return fixed, tuned


def mean_gain(rows: dict[tuple[str, str], Any], mechanism: str = "mafalda") -> float:
    return float(np.mean([r["gain"] for (name, _), r in rows.items() if name == mechanism]))


def test_words_about_tuned_steps() -> None:
    """The published step beside the best of every mechanism, on the Florentine families."""
    text = told("mafalda")
    fixed, tuned = steps_of("Florentine, b = 16, row-normalized")
    before, after = (
        [of["mafalda", e]["gain"] for e in ("0.397", "2.25", "11")] for of in (fixed, tuned)
    )
    assert f"its best is {tuned['ldp', '0.397']['step_size']:g}" in text
    assert f"gain falls from {before[0]:.0f} % to {after[0]:.0f} %" in text
    assert (
        f"gains {after[1]:.1f} % at ε = 2.25, where {before[1]:.1f} % were seen, and "
        f"{after[2]:.1f} % at 11, where none was"
    ) in text
    assert fixed["mafalda", "11"]["gain_low"] < 0
    own = [row for (name, _), row in tuned.items() if name == "mafalda"]
    assert min(row["gain_low"] for row in own) > 0
    for epsilon in {epsilon for _, epsilon in tuned} - {"inf"}:
        names = ("mafalda", "d-mf", "ldp", "antipgd")
        losses = [tuned[name, epsilon]["test_loss"] for name in names]
        assert losses == sorted(losses)
    means = f"over the grid is {mean_gain(tuned):.1f} %, {mean_gain(fixed):.1f} % at the fixed step"
    assert means in text
    sizes = [row["step_size"] for row in tuned.values()]
    assert f"Steps are from {min(sizes):g} to {max(sizes):g}, none at an end" in text
    _, settings = load_settings("mafalda")
    every = [
        r["step_size"] for r in typed("mafalda-summary") if r["setting"].endswith("tuned steps")
    ]
    assert settings.tuning.step_sizes[0] < min(every)
    assert max(every) < settings.tuning.step_sizes[-1]


def test_words_about_tuned_steps_of_the_ego_graph() -> None:
    """What the published step makes of the gain, row-normalized and Metropolis-Hastings."""
    text = told("mafalda")
    fixed, tuned = steps_of("Ego, b = 16, row-normalized")
    low = [[of["mafalda", e]["gain"] for e in ("0.397", "0.834")] for of in (fixed, tuned)]
    assert f"Most of the {low[0][0]:.0f} % and {low[0][1]:.0f} % at the two smallest" in text
    assert f"tuned, they are {low[1][0]:.0f} % and {low[1][1]:.0f} %" in text
    means = f"over the grid is {mean_gain(tuned):.1f} %, in place of {mean_gain(fixed):.0f} %"
    assert means in text
    epsilons = {epsilon for _, epsilon in tuned} - {"inf"}
    for epsilon in epsilons:
        losses = {n: row["test_loss"] for (n, e), row in tuned.items() if e == epsilon}
        assert losses["ldp"] < 1.33  # of a constant
        assert (min(losses, key=losses.__getitem__), max(losses, key=losses.__getitem__)) == (
            "mafalda",
            "antipgd",
        )
    assert {e for e in epsilons if tuned["mafalda", e]["gain_low"] < 0} == {"35.6"}
    large = [(of["mafalda", "11"]["gain"], of["mafalda", "96.7"]["gain"]) for of in (tuned, fixed)]
    assert f"{large[0][0]:.1f} % at 11 ({large[1][0]:.1f} % at the fixed step)" in text
    assert f"and {large[0][1]:.1f} % at 96.7" in text
    steps = [tuned[name, "0.397"]["step_size"] for name in ("antipgd", "ldp")]
    assert "go from {:g} (`antipgd`) and {:g} (`ldp`)".format(*steps) in text
    _, tuned = steps_of("Ego, b = 16, Metropolis")
    both = [mean_gain(tuned, name) for name in ("kronecker", "mafalda")]
    assert "of `kronecker` is {:.1f} % and Mafalda's {:.1f} %".format(*both) in text
    for epsilon in epsilons:
        assert tuned["kronecker", epsilon]["test_loss"] < tuned["mafalda", epsilon]["test_loss"]
    assert tuned["kronecker", "96.7"]["gain"] < 0


def test_words_about_our_designs() -> None:
    """Zip-DL before readers of all messages; R and C together, and pairwise seeds with a C."""
    text = told("ours")
    zip_dl = [
        float(r["over_ldp"])
        for r in records("ours-observers")
        if (r["mechanism"], r["model"]) == ("zip-dl", "ldp")
    ]
    assert f"{min(zip_dl):.0f} to {max(zip_dl):.0f} times as much before" in text
    costs = {(r["setting"], r["mechanism"], r["epsilon"]): r for r in records("ours-costs")}

    def ratios(column: str, mechanism: str, other: str, most: float = math.inf) -> list[float]:
        return [
            float(row[column]) / float(costs[setting, other, epsilon][column])
            for (setting, name, epsilon), row in costs.items()
            if name == mechanism and float(epsilon) <= most
        ]

    error = ratios("error_over_ldp", "kronecker", "ldp")
    assert f"leave {min(error):.2f} to {max(error):.2f} of the error" in text
    more = [100 * (x - 1) for x in ratios("error_over_ldp", "mafalda-edge-local", "kronecker")]
    cost = [100 * (x - 1) for x in ratios("cost", "mafalda-edge-local", "kronecker", 0.1)]
    assert f"{min(more):.0f} to {max(more):.0f} % more error than that" in text
    assert f"cost {min(cost):.0f} to {max(cost):.0f} % more at epsilon 0.1" in text


def test_words_about_the_other_graphs_of_random_batches() -> None:
    """The least of random batches over the least of fixed ones, at epsilon = 1 and 8."""
    found: dict[tuple[str, ...], float] = {}
    for row in records("balls-in-bins-noise"):
        if row["delta"] == "1e-05" and row["over_ldp"]:
            key = (row["setting"], row["adjacency"], row["account"], row["epsilon"])
            found[key] = min(float(row["over_ldp"]), found.get(key, math.inf))

    def pair(setting: str, record: str) -> list[float]:
        return [
            found[setting, record, "random", epsilon] / found[setting, record, "fixed", epsilon]
            for epsilon in ("1.0", "8.0")
        ]

    def digits(value: float) -> str:
        return f"{value:.2f}".lstrip("0") if value < 1 else f"{value:.1f}"

    places = ("ring 16", "erdos-renyi 16 0.3", "florentine")
    out, replaced = (
        [[digits(x) for x in pair(place, record)] for place in places]
        for record in ("zero-out", "replace")
    )
    assert (
        f"left out, {out[0][0]} and {out[0][1]} on the ring and {out[1][0]} and {out[1][1]} on the "
        f"random graph ({out[2][0]} and {out[2][1]} in the table), and for one that is replaced "
        f"{replaced[0][0]} and {replaced[0][1]}, {replaced[1][0]} and {replaced[1][1]} "
        f"({replaced[2][0]} and {replaced[2][1]})"
    ) in told("balls-in-bins")


def test_words_about_one_nodes_view() -> None:
    """Shares of pairs at T = 1000, and quantiles of squared sensitivities over T / n, n = 100."""
    text = told("gossip")
    rows = {
        (r["graph"], r["pair"], int(r["horizon"])): {
            key: float(value)
            for key, value in r.items()
            if key[-1] in "05" or "within" in key or key.startswith("exact_50")
        }
        for r in records("gossip-sensitivity")
    }
    kinds = ("erdos-renyi", "preferential-attachment")

    def of(pair: str, name: str, horizon: int = 1000) -> list[float]:
        return [100 * rows[kind, pair, horizon][name] for kind in kinds]

    far, near, own = "not neighbours", "neighbours", "the node itself"
    ends = ("", "_low", "_high")
    (a, b), low, high = (of(far, f"within_tenth_of_constant{end}") for end in ends)
    assert f"for {a:.0f} % ({low[0]:.0f} % to {high[0]:.0f} %, Erdős–Rényi)" in text
    assert f"and {b:.0f} % ({low[1]:.0f} % to {high[1]:.0f} %, preferential attachment)" in text
    a, b = of(far, "exact_50")
    low, high = of(far, "exact_5"), of(far, "exact_95")
    assert (
        f"sensitivity is {a:.2f} and {b:.2f} of T/n (medians; {low[0]:.2f} to {high[0]:.2f} and "
        f"{low[1]:.2f} to {high[1]:.2f} between the 5 % and 95 % quantiles)"
    ) in text
    (a, b), low, high = (of(near, f"within_tenth_of_constant{end}") for end in ends)
    told_of = zip((a, b), low, high, strict=True)
    assert (
        "it is {} and {} of the pairs".format(
            *(f"{mean:.0f} % ({least:.0f} % to {most:.0f} %)" for mean, least, most in told_of)
        )
        in text
    )
    (c, d), low, high = (of(near, f"within_tenth{end}") for end in ends)
    assert f"compares, {c:.0f} % and {d:.0f} % ({low[1]:.0f} % to {high[1]:.0f} %)" in text
    a, b = of(far, "within_tenth_of_constant", 100)
    assert f"at T = 100 it is {a:.0f} % and {b:.0f} % of the pairs that are no neighb" in text
    median, most = (of(near, name)[1] for name in ("exact_50", "exact_95"))
    low, high = (of(near, f"exact_50{end}")[1] for end in ends[1:])
    assert (
        f"{median:.1f} T/n in the median ({low:.1f} to {high:.1f}) and above {most:.0f} T/n for "
        "one pair"
    ) in text
    a, b = of(own, "exact_50")
    assert f"it is {a / 100:.2f} T and {b / 100:.2f} T, not T/n" in text
