"""Blocks of work in threads: order, errors, and work that divides its own."""

from __future__ import annotations

import threading

import pytest

from noisedesign.base import workers
from noisedesign.base.workers import in_threads


@pytest.mark.parametrize("cores", [1, 2, 5])
def test_results_keep_the_order_of_items(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "cores", lambda: cores)
    assert list(in_threads(lambda x: x**2, range(17))) == [x**2 for x in range(17)]
    assert list(in_threads(lambda x: x, [])) == []


def test_two_threads_work_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "cores", lambda: 2)
    both = threading.Barrier(2, timeout=60)
    assert len(list(in_threads(lambda _: both.wait(), range(4)))) == 4


def test_errors_reach_whoever_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "cores", lambda: 2)
    begun = []

    def work(x: int) -> int:
        begun.append(x)
        return 1 // (3 - x)

    with pytest.raises(ZeroDivisionError):
        list(in_threads(work, range(100)))
    assert len(begun) <= 6  # and what was not begun never is


def test_work_that_divides_its_own_work_takes_no_more_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers, "cores", lambda: 2)

    def outer(x: int) -> set[str]:
        return set(in_threads(lambda _: threading.current_thread().name, range(x + 3)))

    names = list(in_threads(outer, range(4)))
    assert all(len(inner) == 1 for inner in names)
