"""As for the names of the package: those of its modules, and the methods of what they give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

import noisedesign as nd
from noisedesign import noise as drawn
from noisedesign.adapters.run import Run
from noisedesign.conic import formats
from noisedesign.families.toeplitz import solver
from noisedesign.files import exports
from noisedesign.files.exports import seeds
from noisedesign.noise import Secret
from noisedesign.privacy import views
from noisedesign.privacy.seeds import SeedPlan, SharedSeed
from noisedesign.surveys.sweep_file import parse_sweep
from noisedesign.system import directed, workloads
from noisedesign.system.workloads import toeplitz
from noisedesign.tasks.model import conic_program
from tests.support import holds_for
from tests.support.wrong_values import ALGORITHM, SCHEME, SPACE, TARGET, TIME, W, mistakes

ONCE = nd.PrivacyTarget(epsilon=1.0, steps=1)
PROBLEM = nd.TimeProblem.prefix(participation=SCHEME, privacy=TARGET)
DESIGN = nd.solve(PROBLEM).design
PAIRED = nd.SpaceProblem(mixing=W, structure=nd.SpaceStructure(kind="edge-local"), privacy=ONCE)
SHARED = nd.solve(PAIRED).design
assert DESIGN is not None
assert SHARED is not None
SECRET = Secret.new()
STEPS, ONCE_IN_4 = toeplitz.prefix_workload(horizon=4), nd.participation.single(4)
GRID = parse_sweep(
    'name = "s"\ndesign = "space"\n[graph]\nkind = "path"\n[grid]\n"graph.nodes" = [3]', folder="."
)
SEEDS = SeedPlan(nodes=2, seeds=(SharedSeed(members=(0, 1), coefficients=np.ones(2)),))


def noise() -> drawn.NodeNoise:
    return drawn.noise(DESIGN, node=0, secret=SECRET, record=False)


def of(make: Callable[[], Any], method: str) -> Callable[..., Any]:
    """A method of a new one at every call, which changes it."""
    return lambda **kwargs: getattr(make(), method)(**kwargs)


@cache
def exported() -> exports.Exported:
    return exports.read(nd.export(DESIGN, to="npy", path="noise.npy")[0])


CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    # of the package: what the other list leaves out
    "drop_out": (nd.privacy.drop_out, {"design": SHARED, "gone": [0]}),
    "every_drop_out": (nd.privacy.every_drop_out, {"design": SHARED}),
    "mu_to_holders": (nd.privacy.mu_to_holders, {"design": SHARED}),
    "export": (
        lambda **how: nd.export(DESIGN, to="npy", path="o.npy", **how),
        {"calibrated": None, "overwrite": True, "problem_text": ""},
    ),
    "save_design": (lambda **how: nd.save(DESIGN, "d.npz", **how), {"overwrite": True}),
    "verify": (nd.verify, {"stored": DESIGN, "problem": PROBLEM}),
    "compare": (
        lambda **how: nd.compare([TIME], backends=["native"], **how),
        {"retry": False, "output": None},
    ),
    "sweep": (lambda **how: nd.sweep(GRID, output="s.csv", **how), {"retry": False}),
    "Ledger.add": (
        lambda **how: nd.privacy.Ledger().add(DESIGN, secret=SECRET, **how),
        {"resume": False},
    ),
    "matches": (nd.shipped_problems()[0].matches, {"words": ["space"]}),
    "Exposure.renyi": (
        nd.account(ALGORITHM, nd.observers.ldp(), participation=SCHEME)[0].renyi,
        {"alpha": 2.0},
    ),
    "expected": (nd.graphs.EdgeDropout(mixing=W, probability=0.5).expected, {"gram": np.eye(3)}),
    "sample": (
        nd.graphs.EdgeDropout(mixing=W, probability=0.5).sample,
        {"rng": np.random.default_rng(0)},
    ),
    "FixedEpoch.until": (SCHEME.until, {"steps": 2}),
    "MinSeparation.until": (
        nd.participation.MinSeparation(horizon=4, separation=2, max_participations=2).until,
        {"steps": 2},
    ),
    "RandomAllocation.until": (
        nd.participation.RandomAllocation(horizon=4, participations=2).until,
        {"steps": 2},
    ),
    "BMinSepSampling.until": (
        nd.participation.BMinSepSampling(horizon=4, separation=2, rate=0.5).until,
        {"steps": 2},
    ),
    "Patterns.until": (
        nd.participation.Patterns(horizon=4, steps=((0, 1), (2,))).until,
        {"steps": 2},
    ),
    # adapters
    "Run": (Run, {"noise": noise(), "clip": 1.0}),
    "Run.batches": (
        of(lambda: Run(noise()), "batches"),
        {"records": 4, "batch_size": None, "seed": 0},
    ),
    "Run.attend": (of(lambda: Run(noise()), "attend"), {"records": [1]}),
    "Run.add_": (
        of(lambda: Run(noise()), "add_"),
        {"arrays": [np.zeros(3)], "records": range(10**4)},
    ),
    "Run.skip": (of(lambda: Run(noise()), "skip"), {"records": [1]}),
    "Run.load_state_dict": (
        of(lambda: Run(noise()), "load_state_dict"),
        {"state": Run(noise()).state_dict()},
    ),
    # algorithms, graphs, workloads
    "Algorithm": (
        views.Algorithm,
        {"name": "a", "mixing": W, "horizon": 4, "noise": ALGORITHM.noise, "rounds": 1},
    ),
    "build_digraph": (
        directed.build_digraph,
        {"kind": "erdos-renyi", "nodes": 3, "p": 0.9, "seed": 0},
    ),
    "directed_mixing": (
        directed.directed_mixing,
        {"digraph": directed.build_digraph("ring", nodes=3), "weights": "row-stochastic"},
    ),
    "decentralized_gram": (
        workloads.decentralized_gram,
        {"mixing": W, "horizon": 4, "error": None, "random": None},
    ),
    "prefix_gram": (workloads.prefix_gram, {"horizon": 4}),
    "GramWorkload": (toeplitz.GramWorkload, {"matrix": np.eye(3)}),
    "PoleWorkload": (
        toeplitz.PoleWorkload,
        {"poles": np.ones(1), "weights": np.ones(1), "horizon": 3},
    ),
    "gossip_workload": (toeplitz.gossip_workload, {"mixing": W, "horizon": 3}),
    "prefix_workload": (toeplitz.prefix_workload, {"horizon": 3}),
    "optimize_toeplitz": (
        solver.optimize_toeplitz,
        {"workload": STEPS, "participation": ONCE_IN_4, "bands": 2},
    ),
    "optimize_banded_inverse": (
        solver.optimize_banded_inverse,
        {"workload": STEPS, "participation": ONCE_IN_4, "bands": 2},
    ),
    "optimize_buffered": (
        solver.optimize_buffered,
        {"workload": STEPS, "participation": ONCE_IN_4, "buffers": 1},
    ),
    # files
    "exports.read": (exports.read, {"path": "noise.npy"}),
    "read_plan": (seeds.read_plan, {"path": "seeds.json"}),
    "Exported.scaled": (of(exported, "scaled"), {"multiply_by": 1.0}),
    "Exported.node_plan": (of(exported, "node_plan"), {"node": 0, "batch_size": None}),
    "Exported.stream": (
        lambda **how: list(exported().stream(**how)),
        {"dimension": 2, "seed": 0, "steps": 4, "nodes": 3, "multiply_by": 1.0},
    ),
    "SeedPlan.noise_of": (SEEDS.noise_of, {"node": 0, "dimension": 2, "secret": 0, "step": 0}),
    "SeedPlan.scaled": (SEEDS.scaled, {"factor": 2.0}),
    "SeedPlan.held_by": (SEEDS.held_by, {"node": 0}),
    "conic_program": (conic_program, {"problem": SPACE, "formulation": None}),
    "formats.write": (
        formats.write,
        {
            "program": conic_program(SPACE),
            "path": "a.cbf",
            "to": "cbf",
            "description": "",
            "overwrite": True,
        },
    ),
}


@pytest.fixture(autouse=True, scope="module")
def _somewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("here")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("NOISEDESIGN_RECORDS", str(folder / "own"))
        nd.export(DESIGN, to="npy", path="noise.npy")
        nd.export(SHARED, to="seeds", path="seeds.json")
        yield


@pytest.mark.parametrize("name", CALLS)
def test_wrong_values_are_input_errors(name: str) -> None:
    function, right = CALLS[name]

    def refuses(argument: str) -> None:
        others, refused = mistakes(function, right, argument)
        assert not others, "\n".join(others)
        assert refused > 10

    holds_for(right, refuses)


@pytest.mark.parametrize("name", CALLS)
def test_what_is_right_is_taken(name: str) -> None:
    """Else the test above would say nothing."""
    function, right = CALLS[name]
    function(**right)


def test_what_a_design_is_drawn_beside_is_a_list_of_designs() -> None:
    for others in (None, DESIGN, [PROBLEM], "abc"):
        with pytest.raises(nd.InputError, match="^(others|design): "):
            nd.plot(DESIGN, path="p.svg", others=others)  # type: ignore[arg-type]


def test_steps_beyond_the_horizon_are_in_no_scheme() -> None:
    for scheme in (
        SCHEME,
        nd.participation.MinSeparation(horizon=4, separation=2, max_participations=2),
    ):
        assert scheme.until(4).horizon == 4
        with pytest.raises(nd.InputError, match="steps: expected at most 4, the horizon, got 5"):
            scheme.until(5)
