"""The picture of a training: a point a mechanism, account and budget, at the means of the rows."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from noisedesign.base.checks import InputError
from noisedesign_lab.tasks import picture
from noisedesign_lab.tasks.table import TrainingResult, train
from tests.support import pages


def row(mechanism: str, epsilon: float | None, seed: int, loss: float, **more: Any) -> dict:
    made = dict.fromkeys(("train_loss", "accuracy", "consensus_distance", "mu", "confidence"))
    made |= {"mechanism": mechanism, "epsilon": epsilon, "seed": seed, "test_loss": loss}
    made |= {"delta": 1e-5, "stddev": 1.0, "protects": "every message", "responses": "any"}
    return made | {"step": 8, "account": "fixed", "which": "gaussian", "status": "ok"} | more


ROWS = [
    *(row("none", None, seed, 0.5, account="", which="") for seed in (0, 1)),
    *(row("ldp", 1.0, seed, 1.0 + seed) for seed in (0, 1)),
    *(row("ldp", 1.0, seed, 0.6, account="random", which="convolution") for seed in (0, 1)),
    *(row("mafalda", 1.0, seed, 0.8) for seed in (0, 1)),
    row("mafalda", 1.0, 0, 9.0, account="random", which="fixed: C has negative entries"),
    row("ldp", 1.0, 0, 7.0, step=0),
]


def test_points_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict] = []
    drawn = picture.loss_against_epsilon

    def keep(summary: list[dict], **how: Any) -> Any:
        seen.extend(summary)
        return drawn(summary, **how)

    monkeypatch.setattr(picture, "loss_against_epsilon", keep)
    path = picture.loss_picture(TrainingResult(ROWS), tmp_path / "loss.svg")
    points = {one["mechanism"]: one["test_loss"] for one in seen}
    expected = {"none": 0.5, "ldp": 1.5, "ldp, random batches": 0.6, "mafalda": 0.8}
    assert points == pytest.approx(expected)  # neither the first step nor the account that is fixed
    words = {text.text for text in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")}
    assert {"without noise", "independent noise, random batches", "over time"} <= words


def test_a_run_that_diverged_is_told(tmp_path: Path) -> None:
    rows = [row("ldp", 1.0, 0, 0.0, status="diverged", test_loss=None), row("ldp", 2.0, 0, 1.0)]
    text = picture.loss_picture(TrainingResult(rows), tmp_path / "l.svg").read_text()
    assert "diverged at epsilon 1" in text


def test_rows_without_an_epsilon_have_no_picture(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="picture: expected rows with an epsilon"):
        picture.loss_picture(TrainingResult([row("ldp", None, 0, 1.0)]), tmp_path / "l.svg")


@pytest.mark.slow
def test_the_losses_of_the_first_page_are_those_that_come() -> None:
    for name in ("a9a/a9a", "a9a/a9a.t"):
        if not (Path(os.environ.get("NOISEDESIGN_DATA", "")) / name).is_file():
            pytest.skip(f"NOISEDESIGN_DATA names no folder with {name}")
    found = train("training/a9a-florentine")
    at = {(one.mechanism, one.account): one.test_loss for one in found if one.epsilon in (None, 1)}
    keys = [("ldp", "fixed"), ("mafalda", "fixed"), ("edge-local", "fixed")]
    keys += [("edge-local", "random"), ("none", "")]
    caption = pages.read("README.md").split("*What it saves:", 1)[1].split("On your machine", 1)[0]
    assert re.findall(r"(?<!\d)\.\d{3}", caption) == [f"{at[key]:.3f}"[1:] for key in keys]
