"""Accounts where there is no time to draw samples, and accounts that nobody pays for twice."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import noisedesign as nd
from noisedesign.families.amplified import program as amplified
from noisedesign.families.family import family_of

TARGET = nd.PrivacyTarget(epsilon=3.0, delta=1e-6, adjacency="zero-out")
SCHEME = nd.participation.BallsInBins(epochs=8, separation=2)
PROBLEM = nd.TimeProblem.prefix(participation=SCHEME, privacy=TARGET)


def test_a_known_bin_is_the_gaussian_mechanism_of_the_largest() -> None:
    family = family_of(PROBLEM)
    program = family.hurried(family.program(PROBLEM), seconds=0.0)
    c = np.tril(np.ones((16, 16)))
    means = [c[:, j::2].sum(axis=1) for j in (0, 1)]  # a record is in all even steps, or all odd
    mu = max(np.linalg.norm(m) for m in means) / amplified.unit_noise(TARGET)
    account = program.account(c)
    expected = nd.privacy.epsilon_of(mu=mu, delta=TARGET.delta)
    assert math.isclose(account.epsilon, expected, rel_tol=1e-9)
    assert (account.which, account.confidence) == ("unamplified", None)
    assert family.program(PROBLEM).account(c).epsilon < account.epsilon


def test_a_design_without_time_meets_its_target_and_is_verified() -> None:
    solution = nd.solve(PROBLEM, time_limit=1e-3)
    assert (solution.status, solution.feasible) == ("time-limit", True)
    design = solution.design
    assert design is not None
    account = design.certificate.account
    assert account is not None
    assert account.which == "unamplified"
    assert account.epsilon <= TARGET.epsilon
    assert nd.verify(design, problem=PROBLEM).ok
    # Who says that less is known of a record than there is has said so in vain.
    samples = replace(account, which="monte-carlo", confidence=1 - 1e-6)
    lower = replace(account, epsilon=account.epsilon / 2)
    for other in (samples, lower):
        forged = replace(design, certificate=replace(design.certificate, account=other))
        assert not nd.verify(forged).ok


def test_an_account_is_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []
    original = amplified.amplified_epsilon

    def counted(mixture: Any, **how: Any) -> Any:
        asked.append(mixture.gram.tobytes())
        return original(mixture, **how)

    monkeypatch.setattr(amplified, "amplified_epsilon", counted)
    assert nd.solve(PROBLEM).feasible
    assert len(asked) == len(set(asked))
    # Who judges anew takes nobody's word for it.
    family = family_of(PROBLEM)
    program = family.program(PROBLEM)
    before = len(asked)
    for judge in (program, program, family.afresh(program)):
        judge.account(np.tril(np.ones((16, 16))))
    assert len(asked) == before + 2
