"""`noisedesign account` where steps are drawn at random: keys, words, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from noisedesign.files.design_file import save_design
from noisedesign.mechanisms.baselines import baseline
from noisedesign.pages.content import Pictures, Table, Text
from noisedesign.pages.plot import EPSILON, MU, account_figure
from noisedesign.pages.privacy import KNOWN_STEPS, privacy_section
from noisedesign.privacy import views as threats
from noisedesign.privacy.accounting import epsilon_of
from noisedesign.problem.problem import PrivacyTarget, SpaceProblem
from noisedesign.system.participation import BallsInBins
from noisedesign.tasks.account.table import Setting, every_model
from tests.support.command_line import call, write
from tests.support.small_designs import PATH_3, time_design

BINS = '[participation]\nkind = "balls-in-bins"\nepochs = 2\nseparation = 4\n'
GRAPH = '[graph]\nkind = "path"\nnodes = 3\n'
DP_D_SGD = '[algorithm]\nkind = "dp-d-sgd"\nnoise_multiplier = 4\n'
LDP = '[observer]\nmodel = "ldp"\ndelta = 1e-5\n'
KEYS = [
    "node",
    "distance",
    "sensitivity_squared",
    "which",
    "mu_unamplified",
    "epsilon",
    "confidence",
    "epsilon_estimate",
    "delta",
    "adjacency",
    "responses",
    "theorem",
]


def file_of(folder: Path, **tables: str) -> Path:
    parts = {"graph": GRAPH, "participation": BINS, "algorithm": DP_D_SGD, "observer": LDP} | tables
    return write(folder, "".join(parts.values()), name="a.toml")


def test_an_account_file_says_what_is_proved_and_never_mu_alone(tmp_path: Path) -> None:
    outcome = call("account", file_of(tmp_path), "--json")
    assert (outcome.code, outcome.err) == (0, "")
    rows = outcome.json()
    assert [list(row) for row in rows] == [KEYS] * 3
    for row in rows:
        assert row["sensitivity_squared"] == 2
        assert row["mu_unamplified"] == pytest.approx(2 * math.sqrt(2) / 4)
        assert row["epsilon"] < 0.7 * epsilon_of(mu=row["mu_unamplified"], delta=1e-5)
        assert (row["which"], row["confidence"]) == ("convolution", None)


def test_fixed_batches_have_the_keys_they_had(tmp_path: Path) -> None:
    fixed = BINS.replace("balls-in-bins", "fixed-epoch")
    (row, *_) = call("account", file_of(tmp_path, participation=fixed), "--json").json()
    assert list(row) == [
        "node",
        "distance",
        "sensitivity_squared",
        "which",
        "mu",
        "epsilon",
        "delta",
        "adjacency",
        "responses",
        "theorem",
    ]


def test_the_table_says_what_has_to_hold(tmp_path: Path) -> None:
    outcome = call("account", file_of(tmp_path))
    assert "mu unamplified" in outcome.out
    for words in (
        "balls in bins of (k, b) = (2, 4)",
        "in secret",
        "this run alone",
        "fixed number",
    ):
        assert words in outcome.err


@pytest.mark.parametrize(
    ("tables", "field", "words"),
    [
        ({"participation": BINS.replace("separation = 4", "separation = 1")},
         "participation.separation", "nothing is drawn"),
        ({"algorithm": '[algorithm]\nkind = "d-mf"\n'}, "algorithm.kind", "nonnegative = true"),
        ({"observer": LDP.replace("1e-5", "1e-301")}, "observer.delta", "1e-300"),
        ({"observer": LDP.replace("1e-5", "2.0")}, "observer.delta", "(0, 1)"),
        ({"participation": BINS.replace("balls-in-bins", "balls-in-bags")},
         "participation.kind", "balls-in-bins"),
    ],
)  # fmt: skip
def test_wrong_input(tables: dict[str, str], field: str, words: str, tmp_path: Path) -> None:
    outcome = call("account", file_of(tmp_path, **tables))
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.startswith(f"noisedesign: error: {field}: ")
    assert words in outcome.err


def test_a_stored_strategy_with_negative_entries_is_named(tmp_path: Path) -> None:
    """A strategy with entries of both signs, whose design is for four fixed steps."""
    save_design(time_design(), tmp_path / "d.npz")
    algorithm = '[algorithm]\nkind = "design"\nfile = "d.npz"\n'
    participation = BINS.replace("separation = 4", "separation = 2")
    outcome = call("account", file_of(tmp_path, algorithm=algorithm, participation=participation))
    assert outcome.code == 2
    assert outcome.err.startswith("noisedesign: error: algorithm.file: ")
    assert "Near exact privacy amplification" in outcome.err


def test_every_model_is_told_by_epsilon() -> None:
    """Each model names the victim with the largest epsilon, and who sees less learns no more."""
    participation = BallsInBins(epochs=1, separation=2)
    algorithm = threats.dp_d_sgd(mixing=PATH_3, horizon=2)
    setting = Setting(
        algorithm=algorithm, participation=participation, noise_multiplier=2.0, adjacency="zero-out"
    )
    rows = {row.model: row for row in every_model(setting, node=0)}
    assert all(row.random for row in rows.values())
    reader = rows["ldp"].loss
    assert reader is not None
    assert reader == rows["ldp"].epsilon
    for model in ("central", "pndp", "pndp-counted", "secure-sum"):
        loss = rows[model].loss
        assert loss is not None
        assert loss <= reader * (1 + 1e-9)
    assert rows["shared-seed"].loss == math.inf


def test_the_picture_is_of_epsilon() -> None:
    setting = Setting(
        algorithm=threats.dp_d_sgd(mixing=PATH_3, horizon=2),
        participation=BallsInBins(epochs=1, separation=2),
        noise_multiplier=2.0,
    )
    exposures = setting.before(threats.ldp())
    figure = account_figure(exposures, title="")
    assert figure.axes[0].get_ylabel() == EPSILON.format(1e-6)
    highest = max(point for line in figure.axes[0].lines for point in line.get_ydata())
    assert highest == pytest.approx(exposures[0].epsilon)
    known = Setting(algorithm=setting.algorithm, participation=setting.participation.fixed).before(
        threats.ldp()
    )
    assert account_figure(known, title="").axes[0].get_ylabel() == MU


def test_a_design_for_random_batches_before_everybody(tmp_path: Path) -> None:
    """Independent noise on the path, scaled to its target: who reads all messages learns that
    epsilon, and the page of the design says so beside the mu of known steps."""
    target = PrivacyTarget(epsilon=2.0, delta=1e-5, adjacency="zero-out")
    problem = SpaceProblem(
        mixing=PATH_3, participation=BallsInBins(epochs=1, separation=4), privacy=target
    )
    design = baseline(problem, "ldp")
    path = save_design(design, tmp_path / "d.npz")
    rows = {row["model"]: row for row in call("account", path, "--json").json()}
    assert all("mu" not in row for row in rows.values())
    assert rows["ldp"]["epsilon"] == pytest.approx(2.0, rel=1e-3)
    assert rows["ldp"]["epsilon"] <= 2.0
    known = epsilon_of(mu=rows["ldp"]["mu_unamplified"], delta=1e-5)
    assert known > 1.2 * rows["ldp"]["epsilon"]
    section = privacy_section(design, Pictures())
    (table,) = [part for part in section.parts if isinstance(part, Table)]
    assert KNOWN_STEPS in table.columns
    assert "μ" not in table.columns
    told = [part.text for part in section.parts if isinstance(part, Text)]
    assert any("drawn in secret" in text for text in told)
