"""Products on workers of a simulated cluster: what they compute, and what they send, by hand."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
from scipy import sparse

from tests.support import ROOT, oracles


@pytest.fixture
def partitioned(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script, which is beside the package and not in it."""
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import partitioned

    return partitioned


def test_a_path_cut_in_the_middle_sends_one_entry_either_way(partitioned: Any) -> None:
    w = sparse.csr_array(oracles.metropolis(nx.path_graph(4)))
    rows = partitioned.Rows(w, [np.array([1, 0]), np.array([2, 3])])
    wire = partitioned.Wire()
    x = np.arange(8.0).reshape(4, 2)
    found = rows.times([x[[1, 0]], x[[2, 3]]], wire)
    np.testing.assert_allclose(np.concatenate(found), (w @ x)[[1, 0, 2, 3]], atol=1e-15)
    assert rows.pairs == 2
    assert (wire.messages, wire.bytes) == (2, 2 * 2 * 8)  # of two vectors


def test_nothing_is_sent_by_a_worker_alone_and_all_by_workers_of_one_node(partitioned: Any) -> None:
    w = sparse.csr_array(oracles.metropolis(nx.star_graph(5)))
    assert partitioned.Rows(w, [np.arange(6)]).pairs == 0
    assert partitioned.Rows(w, [np.array([u]) for u in range(6)]).pairs == 2 * 5


def test_expected_pairs_are_the_mean_over_all_partitions(partitioned: Any) -> None:
    """Of a path of three into two workers, each node to each with the same chance: by hand, a node
    of degree d has a neighbour at the other worker but with 2^-d."""
    w = sparse.csr_array(oracles.metropolis(nx.path_graph(3)))
    counts = []
    for code in range(8):
        owner = np.array([code >> u & 1 for u in range(3)])
        counts.append(partitioned.Rows(w, [np.flatnonzero(owner == k) for k in (0, 1)]).pairs)
    expected = partitioned.expected_pairs(np.array([1, 2, 1]), 2)
    assert expected == pytest.approx(0.5 + 0.75 + 0.5)
    assert np.mean(counts) == pytest.approx(expected)


def test_what_is_counted_is_what_the_graph_says(
    partitioned: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["--nodes", "300", "--workers", "3", "--vectors", "2", "--counted", "0"]
    assert partitioned.main(small) == 0
    assert "over formula  1" in " ".join(capsys.readouterr().out.split("\n"))
