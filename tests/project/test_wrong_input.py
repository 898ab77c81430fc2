"""Every public function, every argument, every kind of wrong value: an InputError or an answer.

What is right for one argument is wrong for another, so that a call may also succeed. Anything else
that is raised is a traceback for a user, and a defect here.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from scipy.sparse import csr_array

import noisedesign as nd
import noisedesign_lab as lab
from noisedesign.pages import content
from noisedesign.privacy import views as threats
from noisedesign.surveys.sweep_file import parse_sweep
from noisedesign_lab.datasets import Examples
from noisedesign_lab.training.losses import Quadratic
from noisedesign_lab.training.partition import iid
from tests.support import holds_for
from tests.support.made_designs import with_matrix
from tests.support.wrong_values import (
    ALGORITHM,
    DESIGN,
    GRAPH,
    SCHEME,
    SPACE,
    TARGET,
    TARGETED,
    TARGETED_DESIGN,
    TIME,
    W,
    mistakes,
)

PLAN = parse_sweep(
    'name = "s"\ndesign = "space"\n[graph]\nkind = "path"\n[grid]\n"graph.nodes" = [3]', folder="."
)
BOOKED = nd.privacy.Ledger()
BOOKED.add(TARGETED_DESIGN, secret="0123456789abcdef" * 2)

TRAINED: dict[str, Any] = {
    "loss": Quadratic(dimension=2),
    "examples": Examples(features=np.ones((12, 2)), targets=np.zeros(12)),
    "partition": iid(12, 3),
    "mixing": W,
    "participation": SCHEME,
    "mechanisms": ["none", "ldp"],
    "epsilons": [1.0],
    "delta": 1e-5,
    "adjacency": "replace",
    "clip": 1.0,
    "step_sizes": 0.1,
    "batch_size": 2,
    "rounds": 1,
    "random": None,
    "seeds": 2,
    "record": [0, 4],
    "test": None,
    "measured": 3,
    "whose": "nodes",
    "bound": 1e6,
    "max_variance": 9.0,
    "name": "t",
    "identity": "t",
}

RECORDS: dict[Any, dict[str, Any]] = {
    nd.participation.FixedEpoch: {},
    nd.participation.MinSeparation: {},
    nd.participation.BallsInBins: {},
    nd.participation.RandomAllocation: {},
    nd.participation.CyclicPoisson: {"separation": 2},
    nd.participation.TruncatedPoisson: {"separation": 2, "batch_size_limit": 30},
    nd.participation.BMinSepSampling: {"separation": 2, "warm_start": False},
}

CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "SpaceProblem": (
        nd.SpaceProblem,
        {
            "mixing": W,
            "budget": 1.0,
            "max_variance": 9.0,
            "min_variance": 0.1,
            "structure": nd.SpaceStructure(),
            "error": None,
            "random": None,
            "observers": (),
            "rounds": 2,
            "schedule": None,
            "name": "s",
            "nodes": ("a", "b", "c"),
            "privacy": TARGET,
            "participation": SCHEME,
        },
    ),
    "SpaceProblem.from_graph": (
        nd.SpaceProblem.from_graph,
        {"graph": GRAPH, "weights": "max-degree"},
    ),
    "TimeProblem": (
        nd.TimeProblem,
        {
            "gram": np.eye(4),
            "participation": SCHEME,
            "workload": "gram",
            "mixing": None,
            "structure": nd.TimeStructure(),
            "error": None,
            "random": None,
            "name": "t",
            "nodes": (),
            "privacy": TARGET,
        },
    ),
    "TimeProblem.prefix": (nd.TimeProblem.prefix, {"participation": SCHEME}),
    "TimeProblem.from_gram": (
        nd.TimeProblem.from_gram,
        {"gram": np.eye(4), "participation": SCHEME},
    ),
    "TimeProblem.decentralized": (
        nd.TimeProblem.decentralized,
        {
            "mixing": W,
            "participation": SCHEME,
            "rounds": 2,
            "schedule": None,
            "error": None,
            "random": None,
            "nodes": ["a", "b", "c"],
        },
    ),
    "TimeProblem.from_graph": (
        nd.TimeProblem.from_graph,
        {"graph": GRAPH, "participation": SCHEME, "weights": "max-degree"},
    ),
    "SpaceTimeProblem": (
        nd.SpaceTimeProblem,
        {
            "mixing": W,
            "participation": SCHEME,
            "budget": 1.0,
            "max_variance": 9.0,
            "time": nd.TimeStructure(),
            "space": nd.SpaceStructure(),
            "joint": "kronecker",
            "rounds": 2,
            "schedule": None,
            "error": None,
            "random": None,
            "name": "st",
            "nodes": (),
            "privacy": TARGET,
        },
    ),
    "SpaceTimeProblem.from_graph": (
        nd.SpaceTimeProblem.from_graph,
        {"graph": GRAPH, "participation": SCHEME, "weights": "max-degree"},
    ),
    "solve": (
        nd.solve,
        {
            "problem": SPACE,
            "backend": "native",
            "gap": 1e-4,
            "time_limit": 9.0,
            "formulation": None,
            "isolate": False,
            "device": "cpu",
            "start": None,
            "checkpoint": None,
        },
    ),
    "calibrate": (nd.calibrate, {"problem": TARGETED}),
    "verify": (nd.verify, {"stored": DESIGN}),
    "simulate": (nd.simulate, {"design": DESIGN, "runs": 300, "seed": 0}),
    "baseline": (nd.baseline, {"problem": SPACE, "name": "ldp", "dual": None}),
    "baseline_names": (nd.baseline_names, {"problem": SPACE}),
    "compare": (
        nd.compare,
        {
            "problems": [SPACE],
            "backends": ["native"],
            "gap": 1e-4,
            "time_limit": 9.0,
            "formulation": None,
        },
    ),
    "account": (
        nd.account,
        {
            "algorithm": ALGORITHM,
            "observer": nd.observers.ldp(),
            "participation": SCHEME,
            "noise_multiplier": 1.0,
            "adjacency": "replace",
            "delta": 1e-5,
            "victims": [0, 1],
            "worst": False,
        },
    ),
    "account of a design": (
        nd.account,
        {
            "algorithm": DESIGN,
            "observer": nd.observers.ldp(),
            "steps": 3,
            "adjacency": "replace",
            "delta": 1e-5,
            "victims": [0, 1],
        },
    ),
    "export": (nd.export, {"design": DESIGN, "to": "npy", "path": "out.npy"}),
    "plot": (nd.plot, {"design": DESIGN, "path": "out.png"}),
    "report": (nd.report, {"design": DESIGN, "path": "out.html"}),
    "save": (nd.save, {"design": DESIGN, "path": "out.npz", "problem_text": ""}),
    "load design": (nd.load, {"path": "out.npz"}),
    "load": (nd.load, {"path": "p.toml"}),
    "load account": (nd.load, {"path": "a.toml"}),
    "sweep": (nd.sweep, {"plan": PLAN, "output": "rows.csv", "jobs": 1, "timeout": 1.0}),
    "load sweep": (nd.load, {"path": "s.toml"}),
    "TrainingTask": (lab.TrainingTask, TRAINED),
    "train": (
        lab.train,
        {"task": "t.toml", "output": "rows.csv", "jobs": 1, "seeds": 2, "retry": False},
    ),
    "load_training": (lab.load_training, {"path": "t.toml"}),
    "build_graph": (nd.build_graph, {"kind": "erdos-renyi", "nodes": 5, "p": 0.9, "seed": 0}),
    "ring": (nd.build_graph, {"kind": "ring", "nodes": 5}),
    "grid": (nd.build_graph, {"kind": "grid", "rows": 2, "columns": 2}),
    "hypercube": (nd.build_graph, {"kind": "hypercube", "dimension": 2}),
    "random-regular": (
        nd.build_graph,
        {"kind": "random-regular", "nodes": 6, "degree": 3, "seed": 0},
    ),
    "barabasi-albert": (
        nd.build_graph,
        {"kind": "barabasi-albert", "nodes": 6, "links": 2, "seed": 0},
    ),
    "small-world": (
        nd.build_graph,
        {"kind": "small-world", "nodes": 6, "neighbours": 2, "p": 0.1, "seed": 0},
    ),
    "barbell": (nd.build_graph, {"kind": "barbell", "clique": 3, "bridge": 1}),
    "caveman": (nd.build_graph, {"kind": "caveman", "cliques": 2, "members": 3}),
    "mixing_matrix": (nd.mixing_matrix, {"graph": GRAPH, "weights": "max-degree"}),
    "mu_of": (nd.privacy.mu_of, {"epsilon": 1.0, "delta": 1e-5, "conversion": "gdp"}),
    "mu_of rdp": (nd.privacy.mu_of, {"epsilon": 1.0, "delta": 1e-5, "conversion": "rdp"}),
    "epsilon_of": (nd.privacy.epsilon_of, {"mu": 1.0, "delta": 1e-5, "conversion": "gdp"}),
    "delta_of": (nd.privacy.delta_of, {"mu": 1.0, "epsilon": 1.0}),
    "renyi_of": (nd.privacy.renyi_of, {"mu": 1.0, "alpha": 2.0}),
    "noise_stddev_for": (
        nd.privacy.noise_stddev_for,
        {
            "sensitivity_squared": 1.0,
            "epsilon": 1.0,
            "delta": 1e-5,
            "clip": 1.0,
            "adjacency": "replace",
        },
    ),
    "PrivacyTarget": (
        nd.PrivacyTarget,
        {
            "epsilon": 1.0,
            "delta": 1e-5,
            "clip": 1.0,
            "steps": 3,
            "adjacency": "replace",
            "conversion": "gdp",
        },
    ),
    "FixedEpoch": (nd.participation.FixedEpoch, {"epochs": 2, "separation": 2}),
    "MinSeparation": (
        nd.participation.MinSeparation,
        {"horizon": 9, "separation": 2, "max_participations": 3},
    ),
    "BallsInBins": (nd.participation.BallsInBins, {"epochs": 2, "separation": 2}),
    "RandomAllocation": (nd.participation.RandomAllocation, {"horizon": 4, "participations": 2}),
    "CyclicPoisson": (nd.participation.CyclicPoisson, {"epochs": 2, "separation": 2, "rate": 0.5}),
    "TruncatedPoisson": (
        nd.participation.TruncatedPoisson,
        {"epochs": 2, "separation": 2, "rate": 0.5, "batch_size_limit": 3, "group_size": 9},
    ),
    "BMinSepSampling": (
        nd.participation.BMinSepSampling,
        {"horizon": 4, "separation": 2, "rate": 0.5, "warm_start": False},
    ),
    "Patterns": (nd.participation.Patterns, {"horizon": 4, "steps": [[0, 1], [2]]}),
    "single": (nd.participation.single, {"horizon": 4}),
    "every_step": (nd.participation.every_step, {"horizon": 4}),
    **{
        f"{scheme.__name__}.from_records": (
            scheme.from_records,
            {"records": 90, "batch_size": 20, "epochs": 4, **more},
        )
        for scheme, more in RECORDS.items()
    },
    "SpaceStructure": (
        nd.SpaceStructure,
        {"kind": "hops", "hops": 2, "clusters": None, "known_seeds": 1},
    ),
    "clusters": (nd.SpaceStructure, {"kind": "clusters", "clusters": (0, 0, 1)}),
    "TimeStructure": (nd.TimeStructure, {"kind": "banded", "bands": 2, "buffers": None}),
    "ErrorMeasure": (
        nd.ErrorMeasure,
        {
            "horizon": 4,
            "of": "all-iterates",
            "node_weights": None,
            "average": None,
            "step_weights": None,
            "learning_rates": None,
            "momentum": 0.0,
            "push_sum_weights": None,
            "curvature": None,
            "curvature_weights": None,
            "weight_decay": 0.0,
            "learning_rate": None,
        },
    ),
    "ErrorMixture": (
        nd.ErrorMixture,
        {"shares": [1.0, 2.0], "measures": (nd.ErrorMeasure(horizon=2),) * 2},
    ),
    "readout": (
        lambda **kwargs: nd.ErrorMeasure(**kwargs).readout(nodes=3),
        {
            "horizon": 4,
            "node_weights": np.ones(3),
            "average": np.ones(3),
            "push_sum_weights": np.ones(3),
        },
    ),
    "ErrorMeasure.readout": (nd.ErrorMeasure(horizon=4).readout, {"nodes": 3, "step": 1}),
    "NodeDropout": (nd.graphs.NodeDropout, {"mixing": W, "probability": 0.1}),
    "EdgeDropout": (nd.graphs.EdgeDropout, {"mixing": W, "probability": 0.1}),
    "RandomMatchings": (
        nd.graphs.RandomMatchings,
        {"nodes": 3, "matchings": (((0, 1),), ((1, 2),)), "probabilities": (0.5, 0.5)},
    ),
    "pairwise_gossip": (nd.graphs.pairwise_gossip, {"graph": GRAPH}),
    "maximal_matchings": (nd.graphs.maximal_matchings, {"graph": GRAPH}),
    "pndp": (nd.observers.pndp, {"nodes": [0], "own_noise": "seeds"}),
    "coalitions": (nd.observers.coalitions, {"nodes": [0, 1, 2], "size": 2, "own_noise": "seeds"}),
    "secldp": (nd.observers.secldp, {"nodes": [0], "known_seeds": [1, (0, 2)]}),
    "insider": (nd.observers.insider, {"nodes": [0]}),
    "shared_seed": (nd.observers.shared_seed, {"nodes": [0]}),
    "secure_sum": (nd.observers.secure_sum, {"nodes": [0], "own_noise": "seeds"}),
    "tap": (nd.observers.tap, {"nodes": [0]}),
    "dp_d_sgd": (threats.dp_d_sgd, {"mixing": W, "horizon": 4}),
    "muffliato": (threats.muffliato, {"mixing": W, "horizon": 4, "rounds": 2}),
    "antipgd": (threats.antipgd, {"mixing": W, "horizon": 4, "rounds": 2}),
    "mf_d_sgd": (threats.mf_d_sgd, {"mixing": W, "strategy": np.eye(4), "rounds": 1}),
    "whisper": (threats.whisper, {"mixing": W, "covariance": np.eye(3), "horizon": 4}),
    "decor": (
        threats.decor,
        {"mixing": W, "horizon": 4, "node_variance": 1.0, "edge_variance": 1.0},
    ),
    "zip_dl": (
        threats.zip_dl,
        {
            "mixing": W,
            "horizon": 4,
            "variance": 1.0,
            "neighbourhood": "closed",
            "self_message": "unseen",
        },
    ),
    "space_time": (threats.space_time, {"mixing": W, "covariance": np.eye(6), "horizon": 2}),
    "cdp": (
        threats.cdp,
        {
            "mixing": W,
            "horizon": 4,
            "server_noise": "sigma^2/n",
            "strategy": np.eye(4),
            "rounds": 2,
        },
    ),
    "named": (ALGORITHM.named, {"name": "x", "nodes": ("a", "b", "c")}),
    "view": (threats.view, {"algorithm": ALGORITHM, "observer": nd.observers.ldp()}),
    "dp_event": (nd.privacy.dp_event, {"run": TARGETED_DESIGN}),
    "neighboring_relation": (nd.privacy.neighboring_relation, {"run": TARGETED_DESIGN}),
    "privacy_after": (nd.privacy.privacy_after, {"run": TARGETED_DESIGN, "steps": 2}),
    "Ledger": (nd.privacy.Ledger, {"path": "runs.json"}),
    "Ledger.add": (
        lambda **kwargs: nd.privacy.Ledger().add(**kwargs),
        {"run": TARGETED_DESIGN, "secret": "0123456789abcdef" * 2, "name": "first"},
    ),
    "Ledger.epsilon": (lambda **kwargs: BOOKED.epsilon(**kwargs), {"delta": 1e-5}),
    "Ledger.delta": (lambda **kwargs: BOOKED.delta(**kwargs), {"epsilon": 1.0}),
    "Ledger.epsilon without runs": (nd.privacy.Ledger().epsilon, {"delta": 1e-5}),
    "Ledger.delta without runs": (nd.privacy.Ledger().delta, {"epsilon": 1.0}),
    "CheckpointFile": (nd.results.CheckpointFile, {"path": "c.npz", "seconds": 1.0}),
}

LATER = {("ErrorMeasure", "node_weights"), ("ErrorMeasure", "average"), ("TimeProblem", "nodes")}
"""What is checked only where the number of nodes is known, and there may be none."""

FILES = {
    "p.toml": 'name = "p"\ndesign = "space"\n[graph]\nkind = "path"\nnodes = 3\n',
    "a.toml": '[graph]\nkind = "path"\nnodes = 3\n[participation]\nepochs = 1\nseparation = 2\n'
    '[algorithm]\nkind = "dp-d-sgd"\n[observer]\nmodel = "ldp"\n',
    "s.toml": 'name = "s"\ndesign = "space"\n[graph]\nkind = "path"\nnodes = 3\n'
    '[grid]\n"graph.nodes" = [3, 4]\n',
    "t.toml": 'mechanisms = ["ldp"]\n[graph]\nkind = "path"\nnodes = 3\n'
    "[participation]\nepochs = 1\nseparation = 2\n"
    '[data]\nkind = "gaussian"\nrecords = 12\nfeatures = 2\n'
    '[loss]\nkind = "quadratic"\n[privacy]\nepsilons = [1.0]\n',
}


def write_files(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture(autouse=True)
def _somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of its own, where pages have empty pictures."""
    monkeypatch.chdir(write_files(tmp_path))
    empty = b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"/>'
    monkeypatch.setattr(content, "save_figure", lambda _, stream, **how: stream.write(empty))


@pytest.mark.parametrize(
    "name",
    # A comparison starts processes for every value that it takes.
    [pytest.param(name, marks=[pytest.mark.slow] * (name == "compare")) for name in CALLS],
)
def test_wrong_values_are_input_errors(name: str, tmp_path: Path) -> None:
    """Every argument in a folder of its own: what a call writes is in the way of no other."""
    function, right = CALLS[name]

    def refuses(argument: str) -> None:
        with contextlib.chdir(write_files(tmp_path / argument)):
            others, refused = mistakes(function, right, argument)
        assert not others, "\n".join(others)
        assert refused > 10 or (name, argument) in LATER

    holds_for(right, refuses)


@pytest.mark.parametrize("name", [n for n in CALLS if n != "load design"])
def test_what_is_right_is_taken(name: str) -> None:
    """Else the test above would say nothing."""
    function, right = CALLS[name]
    function(**right)


# --- what was meant ---------------------------------------------------------------------------


def test_what_has_a_problem_stands_for_it(tmp_path: Path) -> None:
    loaded = nd.load("p.toml")
    solution = nd.solve(loaded)
    assert solution.problem is loaded.problem
    assert solution.design is not None
    stored = nd.load(nd.save(solution.design, tmp_path / "d.npz"))
    for value in (solution.design, solution, stored):
        assert nd.solve(value).status == "optimal"
    design = nd.solve(TARGETED).design
    assert design is not None
    assert nd.calibrate(design) == nd.calibrate(TARGETED)


@pytest.mark.parametrize("problem", [SPACE, TIME, TARGETED], ids=["space", "time", "target"])
def test_a_design_in_memory_is_verified_like_its_file(problem: Any, tmp_path: Path) -> None:
    solution = nd.solve(problem)
    assert solution.design is not None
    stored = nd.load(nd.save(solution.design, tmp_path / "d.npz"))
    assert nd.verify(solution.design) == nd.verify(solution) == nd.verify(stored)
    assert nd.verify(solution.design).ok


def test_a_wrong_design_in_memory_is_found_out() -> None:
    wrong = with_matrix(DESIGN, matrix=0.9 * DESIGN.matrix)
    failed = {check.name for check in nd.verify(wrong).checks if check.ok is False}
    assert {"sensitivity", "feasible"} <= failed


MEANT: dict[str, tuple[Callable[[], object], str, str]] = {
    "solve(graph)": (lambda: nd.solve(GRAPH), "problem", "SpaceProblem.from_graph(graph)"),
    "solve(W)": (lambda: nd.solve(W), "problem", "SpaceProblem(mixing=W)"),
    "solve(path)": (lambda: nd.solve(Path("p.toml")), "problem", "Give load(path)"),
    "calibrate(graph)": (lambda: nd.calibrate(GRAPH), "problem", "from_graph"),
    "verify(path)": (lambda: nd.verify("d.npz"), "design", "Give load(path)"),
    "verify(problem)": (lambda: nd.verify(SPACE), "design", "solve(problem).design"),
    "export(problem)": (lambda: nd.export(SPACE, to="npy", path="x"), "design", "solve(problem)"),
    "plot(problem)": (lambda: nd.plot(SPACE, path="x.png"), "design", "solve(problem)"),
    "report(problem)": (lambda: nd.report(SPACE, path="x.html"), "design", "solve(problem)"),
    "SpaceProblem(mixing=graph)": (
        lambda: nd.SpaceProblem(mixing=GRAPH),
        "mixing",
        "mixing_matrix(graph)",
    ),
    "TimeProblem.decentralized(mixing=graph)": (
        lambda: nd.TimeProblem.decentralized(mixing=GRAPH, participation=SCHEME),
        "mixing",
        "mixing_matrix(graph)",
    ),
    "structure as text": (
        lambda: nd.SpaceProblem(mixing=W, structure="decor"),
        "structure",
        "SpaceStructure(kind=",
    ),
    "objective as text": (
        lambda: nd.SpaceProblem(mixing=W, error="consensus"),
        "error",
        "ErrorMeasure(horizon=",
    ),
    "participation as pair": (
        lambda: nd.TimeProblem.prefix(participation=(2, 3)),
        "participation",
        "FixedEpoch(epochs=",
    ),
    "target as pair": (
        lambda: nd.SpaceProblem(mixing=W, privacy=(1.0, 1e-5)),
        "privacy",
        "PrivacyTarget(epsilon=",
    ),
    "name as number": (lambda: nd.SpaceProblem(mixing=W, name=1), "name", "a text"),
    "names as one text": (lambda: nd.SpaceProblem(mixing=W, nodes="abc"), "nodes", "list"),
    "names without order": (lambda: nd.SpaceProblem(mixing=W, nodes={1, 2, 3}), "nodes", "list"),
    "unknown workload": (
        lambda: nd.TimeProblem(gram=np.eye(4), participation=SCHEME, workload="foo"),
        "workload",
        "decentralized, prefix, gram",
    ),
    "masked W": (
        lambda: nd.SpaceProblem(mixing=np.ma.masked_array(W, mask=W == 0)),
        "mixing",
        "masked",
    ),
    "masked tau": (
        lambda: nd.SpaceProblem(mixing=W, budget=np.ma.masked_equal([1.0, 2.0, 3.0], 1.0)),
        "budget.tau",
        "masked",
    ),
    "sparse W": (lambda: nd.SpaceProblem(mixing=[csr_array(W)]), "mixing", "toarray()"),
    "float32 tau": (
        lambda: nd.SpaceProblem(mixing=W, budget=np.float32(1)),
        "budget.tau",
        "float32",
    ),
}


@pytest.mark.parametrize(("call", "field", "words"), list(MEANT.values()), ids=list(MEANT))
def test_the_error_says_what_was_meant(call: Callable[[], object], field: str, words: str) -> None:
    with pytest.raises(nd.InputError) as error:
        call()
    assert error.value.field == field
    assert words in str(error.value)


# --- files that never end, and numbers that cannot be computed with --------------------------

PATH_FILE = 'name = "p"\ndesign = "space"\n[graph]\nkind = "path"\nnodes = 3\n'


def problem_with(text: str) -> str:
    Path("wrong.toml").write_text(PATH_FILE + text)
    return "wrong.toml"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes have no names on this system")
@pytest.mark.parametrize("kind", ["edges", "matrix"])
def test_pipes_and_devices_are_not_read(kind: str) -> None:
    os.mkfifo("pipe")
    for name in ("pipe", "/dev/zero"):
        text = f'name = "p"\ndesign = "space"\n[graph]\nkind = "{kind}"\nfile = "{name}"\n'
        Path("endless.toml").write_text(text)
        with pytest.raises(
            nd.InputError, match=r"graph\.file: expected a readable .*: a (pipe|dev)"
        ):
            nd.load("endless.toml")


def test_a_problem_file_that_never_ends() -> None:
    with pytest.raises(nd.InputError, match="problem: expected at most 16777216 bytes"):
        nd.load("/dev/zero")


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("[budget]\ntau = 1e-320\n", "budget.tau"),
        ("[budget]\ntau = 1e308\n", "budget.tau"),
        ("[budget]\ntau = [1.0, 1e308, 1.0]\n", "budget.tau"),
        ("[limits]\nmax_variance = 1e308\n", "limits.max_variance"),
        ("[limits]\nmin_variance = 1e308\n", "limits.min_variance"),
        (
            "[participation]\nepochs = 2\nseparation = 2\n"
            "[privacy]\nepsilon = 1e308\ndelta = 1e-5\n",
            "privacy.epsilon",
        ),
        (
            "[participation]\nepochs = 2\nseparation = 2\n"
            "[privacy]\nepsilon = 1.0\nclip = 1e-320\n",
            "privacy.clip",
        ),
    ],
)
def test_numbers_beyond_computing(text: str, field: str) -> None:
    with pytest.raises(nd.InputError) as error:
        nd.load(problem_with(text))
    assert error.value.field == field


def test_noise_beyond_computing_is_not_nothing() -> None:
    """1e308 times the noise is no reason to say that nothing reaches the observer."""
    for multiplier in (1e308, 1e-320):
        with pytest.raises(nd.InputError, match="noise_multiplier"):
            nd.account(
                ALGORITHM, nd.observers.ldp(), participation=SCHEME, noise_multiplier=multiplier
            )
    for exposure in nd.account(
        ALGORITHM, nd.observers.ldp(), participation=SCHEME, noise_multiplier=1e100, delta=1e-5
    ):
        assert exposure.mu > 0
        assert exposure.words == ""


def test_a_cap_that_decor_cannot_keep_is_named_with_its_node() -> None:
    """Budget .1 at node 0 asks for variance 10 there and, as DECOR noise is alike, everywhere."""
    problem = nd.SpaceProblem.from_graph(
        nx.path_graph(4),
        structure=nd.SpaceStructure(kind="decor"),
        budget=[0.1, 1.0, 1.0, 1.0],
        max_variance=[20.0, 2.0, 20.0, 20.0],
    )
    with pytest.raises(nd.InputError, match=r"got 2 at node 1, .* 5 times as much") as error:
        nd.solve(problem)
    assert error.value.field == "limits.max_variance"


@pytest.mark.parametrize("limit", ["max_variance", "min_variance"])
def test_limits_are_counted_in_units_of_the_budget(limit: str) -> None:
    with pytest.raises(nd.InputError, match=r"expected at most 1e\+50 / tau = 1e\+20 \(node 2\)"):
        nd.SpaceProblem(mixing=W, budget=[1.0, 1.0, 1e30], **{limit: 1e21})
    assert nd.SpaceProblem(mixing=W, budget=[1.0, 1.0, 1e30], **{limit: 1e19}).budget[2] == 1e30
