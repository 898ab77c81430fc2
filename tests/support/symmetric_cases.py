"""Workloads with symmetries that are known by construction."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest
from numpy.typing import NDArray

from noisedesign.certify.program import Program
from noisedesign.families.disjoint.solver import diagonal, symmetry
from noisedesign.families.disjoint.solver.symmetry import Symmetry
from noisedesign.system.participation import single
from tests.support import oracles

Array = NDArray[np.float64]


def make_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let symmetries of small matrices be worth looking for, whatever they save."""
    monkeypatch.setattr(symmetry, "HANDLING", 0)
    monkeypatch.setattr(symmetry, "WORTHWHILE", np.inf)
    monkeypatch.setattr(diagonal, "SYMMETRY_FROM", 1)


def workload(graph: nx.Graph) -> Array:
    """H = W^T W of Metropolis-Hastings weights."""
    w = oracles.metropolis(graph)
    return np.asarray(w.T @ w)


def program(gram: Array, factor: Array | None = None) -> Program:
    return Program(
        gram=gram, participation=single(len(gram)), budget=np.ones(len(gram)), exact_factor=factor
    )


def spatial(graph: nx.Graph, order: NDArray[np.intp] | None = None) -> Program:
    """The program of a graph whose nodes are taken in ``order``."""
    w = oracles.metropolis(graph)
    if order is not None:
        w = np.ascontiguousarray(w[order][:, order])
    return program(w.T @ w, w)


def shuffled(size: int, seed: int = 0) -> NDArray[np.intp]:
    return np.random.default_rng(seed).permutation(size)


def averaged(gram: Array, permutations: list[NDArray[np.intp]]) -> Array:
    """The mean of P^T H P over a group given by all its elements."""
    return np.asarray(np.mean([gram[np.ix_(p, p)] for p in permutations], axis=0))


def group(generators: list[NDArray[np.intp]]) -> list[NDArray[np.intp]]:
    """All products of commuting involutions."""
    elements = [np.arange(len(generators[0]))]
    for g in generators:
        elements += [e[g] for e in elements]
    return elements


def random_gram(size: int, seed: int) -> Array:
    a = np.random.default_rng(seed).standard_normal((size + 2, size))
    return np.asarray(a.T @ a)


def commuting(size: int, count: int, seed: int) -> list[NDArray[np.intp]]:
    """Involutions of shuffled nodes: flips of the binary digits of some groups of nodes.

    Nodes come in orbits of random sizes 1, 2, 4, ...; each involution acts on an orbit, laid out as
    binary numbers, by adding a number of its own, so that any two commute and some fix orbits.
    """
    rng = np.random.default_rng(seed)
    generators = [np.arange(size) for _ in range(count)]
    start = 0
    while start < size:
        bits = int(rng.integers(0, count + 1))
        while start + 2**bits > size:
            bits -= 1
        for g in generators:
            g[start : start + 2**bits] = start + (np.arange(2**bits) ^ rng.integers(0, 2**bits))
        start += 2**bits
    order = rng.permutation(size)
    back = np.argsort(order)
    return [order[g[back]] for g in generators]


def assert_splits(gram: Array, found: Symmetry) -> None:
    """The vectors of all blocks, (n, k) each, are a basis, and H has no entry between blocks."""
    orbits = [np.flatnonzero(found.orbit == c) for c in range(found.orbit.max() + 1)]
    blocks = []
    for signs in found.signs:
        vectors = np.zeros((len(gram), len(orbits)))
        for c, nodes in enumerate(orbits):
            vectors[nodes, c] = signs[nodes] / np.sqrt(len(nodes))
        blocks.append(vectors[:, vectors.any(axis=0)])
    whole = np.concatenate(blocks, axis=1)
    np.testing.assert_allclose(whole.T @ whole, np.eye(len(gram)), atol=1e-12)
    scale = np.abs(gram).max()
    for (a, left), (b, right) in itertools.combinations(enumerate(blocks), 2):
        np.testing.assert_allclose(left.T @ gram @ right, 0, atol=1e-12 * scale, err_msg=f"{a} {b}")
