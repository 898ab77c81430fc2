"""The table of decompositions: what is in it, and that no shipped problem needs many."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import ROOT

MOST = 12
"""Decompositions that a gap of 1e-9 may take."""
SMALL = 250
"""Steps up to which a problem is solved here; others of their families are as well."""


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A script, beside the package and not in it."""
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import counts

    return counts


def test_no_shipped_problem_needs_many(counts: Any) -> None:
    problems = counts.shipped()
    limited = {"whisper/florentine-floored": "floor", "directed/ring-8-one-way": "cap"}
    assert limited.keys() <= problems.keys()
    assert "prefix/prefix-20x19" in problems
    for left_out in ("space-structures/florentine-decor", "observers/path-5-both-ends"):
        assert left_out not in problems
    for name, problem in problems.items():
        if len(problem.gram) > SMALL:
            continue
        row = counts.row_of(name, problem)
        assert row["status, gap 1e-09"] == row["status, gap 1e-06"] == "optimal"
        assert row["eigh, gap 1e-06"] <= row["eigh, gap 1e-09"] <= MOST
        assert row["limits"] == limited.get(name, "cap" if "capped" in name else "none")
        singular = name in ("directed/ring-8-one-way", "whisper/erdos-renyi-20-p10-capped")
        assert row["W or H"] == ("singular" if singular else "regular")
        if problem.design == "space":
            assert row["k"] == 1


def test_the_largest_of_each_group(counts: Any) -> None:
    def row(limits: str, coarse: int, fine: int) -> dict[str, object]:
        return {
            "design": "space",
            "W or H": "regular",
            "limits": limits,
            "k": 1,
            "eigh, gap 1e-06": coarse,
            "eigh, gap 1e-09": fine,
        }

    found = counts.largest([row("none", 3, 9), row("cap", 5, 6), row("none", 4, 5)])
    assert found == [row("cap", 5, 6) | {"problems": 1}, row("none", 4, 9) | {"problems": 2}]
