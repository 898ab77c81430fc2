"""What is exported of designs whose privacy rests on batches that are drawn in secret."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.files.exports import read, takers
from noisedesign.noise import Plan, RandomBatches
from tests.support.command_line import call
from tests.support.small_designs import PATH_3
from tests.support.trainers import secret

SCHEME = nd.participation.BallsInBins(epochs=2, separation=2)
TARGET = nd.PrivacyTarget(epsilon=3.0, delta=1e-5, clip=0.5)


@cache
def design(kind: str, scheme: Any = SCHEME) -> nd.Design:
    fields: dict[str, Any] = {"mixing": PATH_3, "participation": scheme, "privacy": TARGET}
    problem: Any = nd.TimeProblem.decentralized(**fields)
    if kind == "space":
        problem = nd.SpaceProblem(**fields)
    return nd.baseline(problem, "ldp")


@pytest.mark.parametrize(
    ("to", "kind"), [("jax-privacy", "time"), ("mfdl", "time"), ("decor", "space")]
)
def test_trainers_with_a_loader_of_their_own_are_refused(
    to: str, kind: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="participation: expected one in which any order") as told:
        nd.export(design(kind), to=to, path=tmp_path / "out.npy")
    assert "noisedesign deploy" in told.value.remedy
    assert not list(tmp_path.iterdir())
    found = takers(design(kind))
    assert to not in found
    assert {"npy", "decentralizepy"} <= set(found)
    assert to in takers(design(kind, SCHEME.fixed))


def test_files_of_nodes_draw_their_batches(tmp_path: Path) -> None:
    nd.export(design("time"), to="decentralizepy", path=tmp_path / "run.json")
    plan = Plan.load(tmp_path / "run-0.plan")
    assert plan.claim.rule == SCHEME.rule
    assert len(RandomBatches(plan, records=6, secret=secret(1))) == 4
    assert "drawing in secret" in json.loads((tmp_path / "run.json").read_text())["loader"]


def test_generic_files_say_what_the_loader_must_do(tmp_path: Path) -> None:
    for scheme, random in ((SCHEME, True), (SCHEME.fixed, False)):
        path = tmp_path / f"{random}.npy"
        nd.export(design("time", scheme), to="npy", path=path)
        found = read(path)
        assert found.claim.rule == scheme.rule
        assert found.metadata["participation_kind"] == scheme.kind
        assert ("loader" in found.metadata) == random
        assert found.node_plan(1).claim.rule == scheme.rule


def test_against_holders_of_seeds_any_order_counts(tmp_path: Path) -> None:
    """One covariance for both schemes: who holds seeds learns more by the same ratio."""
    found = {}
    for name, scheme in (("random", SCHEME), ("fixed", SCHEME.fixed)):
        structure = nd.SpaceStructure(kind="decor")
        fields: dict[str, Any] = {"mixing": PATH_3, "participation": scheme, "privacy": TARGET}
        solved = nd.solve(nd.SpaceProblem(**fields, structure=structure)).design
        assert solved is not None
        mu, claim = nd.privacy.mu_to_holders(solved), solved.claim
        assert mu is not None
        assert claim.mu is not None
        found[name] = (mu / claim.mu, mu * claim.noise_stddev)
        nd.save(solved, tmp_path / f"{name}.npz")
        ran = call("deploy", tmp_path / f"{name}.npz", "-o", tmp_path / name)
        words = " ".join(ran.out.split())
        assert "which knows its own seeds, the others have" in words
        told = "Against those that hold seeds nothing of what is drawn is counted" in words
        assert told == scheme.random
    assert found["random"] == pytest.approx(found["fixed"], rel=1e-5)


@pytest.mark.parametrize(
    "kind",
    [
        "dense",
        *(pytest.param(k, marks=pytest.mark.slow) for k in ("banded", "space")),
        "fixed but nonnegative",
    ],
)
def test_a_plan_is_the_same_from_memory_file_and_export(kind: str, tmp_path: Path) -> None:
    """Else nodes that got theirs in different ways would share no seed, and secrets serve none."""
    fields: dict[str, Any] = {"mixing": PATH_3, "participation": SCHEME, "privacy": TARGET}
    problem: Any = nd.TimeProblem.decentralized(**fields)
    if kind == "banded":
        structure = nd.TimeStructure(kind="banded", bands=2)
        problem = nd.TimeProblem.decentralized(**fields, structure=structure)
    if kind == "space":
        problem = nd.SpaceProblem(**fields)
    if kind == "fixed but nonnegative":
        fields["participation"] = SCHEME.fixed
        structure = nd.TimeStructure(nonnegative=True)
        problem = nd.TimeProblem.decentralized(**fields, structure=structure)
    made = nd.solve(problem).design
    assert made is not None
    loaded = nd.load(nd.save(made, tmp_path / "made.npz")).design
    nd.export(made, to="npy", path=tmp_path / "made.npy")
    plans = [one.node_plan(0) for one in (made, loaded, read(tmp_path / "made.npy"))]
    plans.append(Plan.load(plans[0].save(tmp_path / "made.plan")))
    assert len({plan.digest for plan in plans}) == 1
    assert len({plan.claim for plan in plans}) == 1
    account = made.certificate.account or nd.calibrate(problem).account
    confidence = None if account is None else account.confidence
    assert plans[0].claim.confidence == confidence
    if kind in ("dense", "banded"):
        assert confidence == 1 - 1e-6
        ran = call("deploy", tmp_path / "made.npz", "-o", tmp_path / "out")
        assert "with confidence 1 - 1e-06" in " ".join(ran.out.split())


def test_deploy_says_what_the_loader_must_do(tmp_path: Path) -> None:
    for name, scheme in (("random", SCHEME), ("fixed", SCHEME.fixed)):
        nd.save(design("time", scheme), tmp_path / f"{name}.npz")
        ran = call("deploy", tmp_path / f"{name}.npz", "-o", tmp_path / name)
        assert ran.code == 0
        words = " ".join(ran.out.split())
        assert ("every node draws in secret who takes part when" in words) == (name == "random")
        assert "Against those that hold seeds nothing of what is drawn" not in words
    plan = Plan.load(tmp_path / "random" / "0-0.plan")
    assert plan.claim.rule == SCHEME.rule
