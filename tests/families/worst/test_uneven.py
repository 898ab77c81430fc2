"""Shares on their path where errors differ much: weights of steps, and errors that never lead."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.monitor import Monitor
from noisedesign.families.worst import solver
from noisedesign.families.worst.family import FAMILY
from noisedesign.families.worst.program import WorstProgram
from noisedesign.problem.problem import Problem
from tests.support import oracles

ENOUGH = 150
"""Problems solved, of which twice that are allowed; 2 to 60 were counted."""


def prefix(epochs: int, separation: int, weights: np.ndarray) -> Problem:
    use = nd.participation.FixedEpoch(epochs=epochs, separation=separation)
    error = nd.ErrorMeasure(horizon=use.horizon, of="worst", step_weights=weights)
    return nd.TimeProblem.prefix(participation=use, error=error)


def in_space(graph: nx.Graph, of: str) -> Problem:
    error = nd.ErrorMeasure(horizon=4, of=of)
    w = oracles.metropolis(graph)
    return nd.SpaceProblem(mixing=w, error=error, max_variance=20.0)


PROBLEMS = {
    "steps, two epochs": prefix(2, 3, np.array([1.0, 2.0, 1.0, 1.5, 1.0, 3.0])),
    "steps, far apart": prefix(2, 6, np.exp(np.random.default_rng(0).normal(size=12))),
    "steps of one error": prefix(1, 16, 1 / np.arange(1.0, 17.0)),
    "the last step leads": in_space(nx.complete_graph(5), "worst"),
    "a pair leads": in_space(nx.complete_graph(5), "worst-iterate"),
    "leaves lead": in_space(nx.star_graph(5), "worst-node"),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_gap_closes_in_few_problems(name: str) -> None:
    program, gap = WorstProgram.of(PROBLEMS[name]), 1e-6
    answer = solver.solve(program, monitor=Monitor(gap=gap))
    lower = FAMILY.bound(program, answer.proof).value
    (noise,) = answer.noises
    assert program.errors(noise).max() <= lower * (1 + gap)
    assert answer.evaluations <= ENOUGH


def test_steps_of_one_error_cost_what_the_first_does() -> None:
    """Independent noise has the error t at step t, and 1 at all by these weights: none is better
    at step 1."""
    design = nd.solve(PROBLEMS["steps of one error"]).design
    assert design is not None
    assert design.objective == pytest.approx(1.0, rel=2e-6)
