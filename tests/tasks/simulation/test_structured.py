"""Every family run through the simulator: its noise varies, and protects, as the design says."""

from __future__ import annotations

from functools import cache

import networkx as nx
import numpy as np
import pytest

from noisedesign.design.design import Design, seed_plan_of
from noisedesign.design.solve import solve
from noisedesign.files.problem_file import load_problem, parse_problem
from noisedesign.privacy.seeds import SeedPlan
from noisedesign.problem.problem import SpaceProblem
from noisedesign.tasks.simulate import simulate
from tests.support import ROOT, oracles
from tests.support.made_designs import with_matrix
from tests.support.simulated import simulate_space

RUNS = 3000
GRAPH = '[graph]\nkind = "path"\nnodes = 5\n'
W = oracles.metropolis(nx.path_graph(5))
TWO_BY_THREE = "[participation]\nepochs = 2\nseparation = 3\n"
APART = (
    '[participation]\nkind = "min-separation"\nhorizon = 7\nseparation = 3\n'
    "max_participations = 2\n"
)
SPACE = 'name = "x"\ndesign = "space"\n' + GRAPH + "[budget]\ntau = [1.0, 2.0, 0.5, 1.0, 1.0]\n"
TIME = 'name = "x"\ndesign = "time"\n[workload]\nkind = "decentralized"\n' + GRAPH
JOINT = 'name = "x"\ndesign = "space-time"\n' + GRAPH + TWO_BY_THREE


def in_space(kind: str) -> str:
    return SPACE + f'[structure]\nspace = "{kind}"\n'


def in_time(kind: str, participation: str = TWO_BY_THREE) -> str:
    return TIME + participation + f'[structure]\ntime = "{kind}"\n'


def with_error(of: str, more: str = "") -> str:
    return f'[error]\nof = "{of}"\n{more}'


FAMILIES = {
    "edge-local": in_space("edge-local"),
    "edge-local, capped": in_space("edge-local") + "[limits]\nmax_variance = 2.5\n",
    "edge-local, known seeds": in_space("edge-local") + "known_seeds = 1\n",
    "neighbourhood, known seeds": in_space("neighbourhood") + "known_seeds = 1\n",
    "two hops": in_space("hops") + "hops = 2\n",
    "neighbourhood": in_space("neighbourhood"),
    "decor": in_space("decor"),
    "independent": in_space("independent"),
    "edge-local, last iterate": in_space("edge-local") + with_error("last-iterate", "horizon = 3"),
    "edge-local, dropout": in_space("edge-local") + "[mixing]\ndropout = 0.3\n",
    "last iterate": SPACE + with_error("last-iterate", "horizon = 4\n"),
    "step weights": SPACE
    + with_error(
        "all-iterates", "horizon = 4\nstep_weights = [0, 1, 2, 3]\nnode_weights = [1, 2, 3, 4, 5]\n"
    ),
    "pairwise gossip": SPACE + '[mixing]\nmatching = "pairwise"\n',
    "banded": in_time("banded") + "bands = 2\n",
    "banded, min-separation": in_time("banded", APART) + "bands = 3\n",
    "min-separation": TIME + APART,
    "toeplitz": in_time("toeplitz"),
    "banded inverse": in_time("banded-inverse") + "bands = 2\n",
    "blt": in_time("blt") + "buffers = 2\n",
    "mean model": TIME + TWO_BY_THREE + with_error("mean-model"),
    "consensus": TIME + TWO_BY_THREE + with_error("consensus"),
    "learning rates": TIME
    + TWO_BY_THREE
    + with_error("all-iterates", "learning_rates = [1, 1, 0.5, 0.5, 0.25, 0.25]\nmomentum = 0.5\n"),
    "banded, edge failures": in_time("banded") + "bands = 2\n[mixing]\nedge_failure = 0.3\n",
    "maximal matchings": TIME + TWO_BY_THREE + '[mixing]\nmatching = "maximal"\n',
    "dropout over time": TIME + TWO_BY_THREE + "[mixing]\ndropout = 0.3\n",
    "kronecker, edge-local": JOINT + '[structure]\nspace = "edge-local"\n',
    "kronecker, banded and decor": JOINT
    + '[structure]\ntime = "banded"\nbands = 2\nspace = "decor"\n',
    "kronecker, toeplitz and neighbourhood": JOINT
    + '[structure]\ntime = "toeplitz"\nspace = "neighbourhood"\n',
    "full, edge failures": JOINT + '[structure]\njoint = "full"\n[mixing]\nedge_failure = 0.3\n',
}


@cache
def solved(family: str) -> Design:
    design = solve(parse_problem(FAMILIES[family], folder=".").problem).design
    assert design is not None
    return design


@pytest.mark.parametrize("family", FAMILIES)
def test_variance_is_as_predicted_and_no_attack_exceeds_mu(family: str) -> None:
    outcome = simulate(solved(family), runs=RUNS, seed=1)
    assert outcome.variance.agrees
    assert outcome.variance.interval[1] <= 1.5 * outcome.variance.interval[0]
    assert not outcome.audit.exceeds
    assert outcome.audit.close  # budgets are used up: less noise would not do


def test_clusters_are_simulated_as_shipped() -> None:
    path = ROOT / "problems/space-structures/florentine-clusters.toml"
    design = solve(load_problem(path).problem).design
    assert design is not None
    assert simulate(design, runs=RUNS, seed=1).agrees


@pytest.mark.parametrize(
    "family", ["edge-local", "banded", "kronecker, edge-local", "dropout over time"]
)
def test_a_design_with_less_noise_is_found_out(family: str) -> None:
    """The same file with a quarter of the variance: the error is smaller, and so is the privacy."""
    design = solved(family)
    if isinstance(design.problem, SpaceProblem):
        weak = with_matrix(design, matrix=design.matrix / 4)
    else:
        weak = with_matrix(design, matrix=design.matrix * 2)
    outcome = simulate(weak, runs=RUNS, seed=1)
    assert not outcome.variance.agrees
    assert outcome.audit.exceeds


@pytest.mark.parametrize("family", ["edge-local", "two hops", "neighbourhood", "independent"])
def test_noise_of_the_seeds_costs_what_was_predicted(family: str) -> None:
    """Drawn node by node from the seeds they hold, mixed once: the mean squared error of a step."""
    plan, draws = seed_plan_of(solved(family)), 100_000
    assert isinstance(plan, SeedPlan)
    noise = np.stack([plan.noise_of(i, dimension=draws, secret=5) for i in range(5)])
    errors = np.square(W @ noise).sum(axis=0)
    spread = 5 * float(errors.std()) / np.sqrt(draws)
    assert abs(float(errors.mean()) - solved(family).objective) <= spread
    report = simulate_space(
        mixing=W, covariance=plan.covariance(), predicted=solved(family).objective, runs=RUNS
    )
    assert report.agrees
