"""decentralizepy, the real one: noise of every kind of design, and data that go on where they were.

The trainer is in no package index: it is tested where it is installed.
"""

from __future__ import annotations

import configparser
import importlib.util
import itertools
import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.noise import Secret
from noisedesign.problem.calibration import calibrate
from tests.support.adapters import audit_noise, check_noise
from tests.support.clones import clone
from tests.support.small_designs import PATH_3, TARGET
from tests.support.trainer_rows import trainer_row
from tests.support.trainers import CLIP, FEATURES, a9a, accuracy, random_plan, secret, sums_by_hand

torch = pytest.importorskip("torch", reason="decentralizepy is of torch, which is not installed")
if importlib.util.find_spec("decentralizepy") is None:
    sys.path.insert(0, str(clone("decentralizepy") / "src"))
    pytest.importorskip("localconfig", reason="decentralizepy needs localconfig")

from decentralizepy.graphs.Graph import Graph  # noqa: E402
from decentralizepy.mappings.Linear import Linear  # noqa: E402

from noisedesign.adapters import decentralizepy as adapter  # noqa: E402

SCHEME = nd.participation.FixedEpoch(epochs=2, separation=2)
TWICE = replace(TARGET, steps=None)
DIMENSION, RECORDS, BATCH = 20_000, 6, 3


@pytest.fixture(autouse=True)
def _records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISEDESIGN_RECORDS", str(tmp_path / "records.sqlite3"))


def design(kind: str) -> Any:
    space: dict[str, Any] = {"mixing": PATH_3, "privacy": TWICE, "participation": SCHEME}
    problem: Any = nd.SpaceProblem(**space)
    if kind == "decor":
        problem = nd.SpaceProblem(**space, structure=nd.SpaceStructure(kind="decor"))
    if kind == "time":
        problem = nd.TimeProblem.decentralized(**space)
    if kind == "space-time":
        problem = nd.SpaceTimeProblem(**space)
    found = nd.solve(problem).design
    assert found is not None
    return found


def designed(found: Any) -> np.ndarray:
    """Of the noise on the sums, (4 * 3, 4 * 3), time-major, from C and R by dense algebra."""
    scale = calibrate(found.problem).noise_stddev ** 2
    inverse, space = np.eye(4), np.eye(3)
    if found.axes != "space":
        inverse = np.linalg.inv(found.strategy)
    if found.axes != "time":
        space = found.covariance
    return scale * np.kron(inverse @ inverse.T, space)


class Data:
    """A dataset of the trainer: vectors of length ``size`` at every node."""

    def __init__(self, records: int = RECORDS, size: int = DIMENSION, scale: float = 1.0) -> None:
        generator = torch.Generator().manual_seed(records)
        x = scale * torch.randn(records, size, generator=generator)
        self.trainset = torch.utils.data.TensorDataset(x, torch.zeros(records))

    def get_trainset(self, batch_size: int = 1, shuffle: bool = False) -> Any:
        return torch.utils.data.DataLoader(self.trainset, batch_size=batch_size, shuffle=shuffle)


class Linear1(torch.nn.Module):
    def __init__(self, size: int = DIMENSION) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(size))

    def forward(self, x: Any) -> Any:
        return x @ self.weight


def inner(output: Any, target: Any) -> Any:
    """Its gradient at an example x is x."""
    return output.mean()


def exported(found: Any, folder: Path, *, seed: int = 1) -> str:
    nd.export(found, to="decentralizepy", path=folder / "run.json")
    secret(seed).save(folder / "run.secret")
    return str(folder / "run")


def training(plans: str, node: int = 0, *, model: Any = None, **how: Any) -> Any:
    model = Linear1() if model is None else model
    parameters = {"batch_size": BATCH, "secret": f"{plans}.secret"} | how
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    mapping = how.pop("mapping", Linear(1, 3))
    parameters.pop("mapping", None)
    return adapter.NoisyTraining(
        node, 0, mapping, model, optimizer, inner, ".", plans=plans, **parameters
    )


@pytest.mark.parametrize("kind", ["space", "decor", "time", "space-time"])
def test_what_reaches_the_parameters_is_the_designed_noise(kind: str, tmp_path: Path) -> None:
    found = design(kind)
    plans, data = exported(found, tmp_path), Data()
    drawn = np.zeros((4, 3, DIMENSION))
    x = data.trainset.tensors[0].double().numpy()
    clipped = x * np.minimum(1, TARGET.clip / np.linalg.norm(x, axis=1))[:, None]
    for node in range(3):
        trained = training(plans, node)
        before = np.zeros(DIMENSION)
        for step in range(4):
            trained.train(data)
            after = trained.model.weight.detach().double().numpy().copy()
            records = trained.batches[step]
            assert len(records) == BATCH
            drawn[step, node] = (before - after) * BATCH - clipped[records].sum(axis=0)
            before = after
    check_noise(designed(found), drawn)


def test_audit_of_noise_through_the_adapter_does_not_exceed_mu(tmp_path: Path) -> None:
    found, numbers = design("time"), itertools.count(100)

    def draw(d: int) -> np.ndarray:
        number = next(numbers)
        folder = tmp_path / str(number)
        folder.mkdir()
        trained = training(exported(found, folder, seed=number), model=Linear1(d))
        assert trained.run.noise.claim.epsilon == TWICE.epsilon
        weights = [np.zeros(d)]
        for _ in range(4):
            trained.train(Data(size=d, scale=0.0))
            weights.append(trained.model.weight.detach().double().numpy().copy())
        return -BATCH * np.diff(weights, axis=0)

    report = audit_noise(found, draw, runs=20_000)
    assert not report.exceeds
    assert report.close


def test_a_record_comes_back_when_the_design_says(tmp_path: Path) -> None:
    trained = training(exported(design("time"), tmp_path))
    for _ in range(4):
        trained.train(Data())
    batches = [set(trained.batches[t].tolist()) for t in range(4)]
    assert batches[0] == batches[2]
    assert batches[1] == batches[3]
    assert batches[0] | batches[1] == set(range(RECORDS))
    assert not batches[0] & batches[1]
    with pytest.raises(InputError, match=r"step: expected 0 to 3"):
        trained.train(Data())


def test_several_steps_a_call_are_the_same_steps(tmp_path: Path) -> None:
    plans = exported(design("time"), tmp_path)
    one = training(plans)
    for _ in range(4):
        one.train(Data())
    os.environ["NOISEDESIGN_RECORDS"] = str(tmp_path / "other.sqlite3")
    two = training(plans, rounds=2)
    for _ in range(2):
        two.train(Data())
    assert torch.equal(one.model.weight, two.model.weight)


def test_the_model_learns_what_the_right_one_learns(tmp_path: Path) -> None:
    """Nodes of the trainer on a part of a9a each, averaged with the design's W."""
    scheme = nd.participation.FixedEpoch(epochs=3, separation=4)
    target = replace(TARGET, steps=None, epsilon=1e3, clip=CLIP)
    problem = nd.TimeProblem.decentralized(mixing=PATH_3, privacy=target, participation=scheme)
    plans = exported(nd.solve(problem).design, tmp_path)
    x, y = a9a()

    class Part(Data):
        def __init__(self, node: int) -> None:
            parts = torch.from_numpy(x[node::3]), torch.from_numpy(y[node::3])
            self.trainset = torch.utils.data.TensorDataset(*parts)

    def network() -> torch.nn.Module:
        torch.manual_seed(0)
        hidden, out = torch.nn.Linear(FEATURES, 32), torch.nn.Linear(32, 1)
        return torch.nn.Sequential(hidden, torch.nn.Tanh(), out, torch.nn.Flatten(0))

    def numbers(model: Any) -> dict[str, np.ndarray]:
        hidden, bias, out, shift = (p.detach().double().numpy() for p in model.parameters())
        return {"hidden": hidden.T, "bias": bias, "out": out[0], "shift": shift[0]}

    def averaged(models: list[dict[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
        stacked = {name: np.array([model[name] for model in models]) for name in models[0]}
        return [
            {name: np.tensordot(row, part, axes=1) for name, part in stacked.items()}
            for row in np.asarray(PATH_3)
        ]

    nodes, rate = [], 8.0
    for node in range(3):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=rate)
        loss = torch.nn.functional.binary_cross_entropy_with_logits
        how: dict[str, Any] = {"plans": plans, "batch_size": 500, "secret": f"{plans}.secret"}
        nodes.append(
            adapter.NoisyTraining(node, 0, Linear(1, 3), model, optimizer, loss, ".", **how)
        )
    by_hand = [numbers(network()) for _ in nodes]
    for t in range(12):
        for node, trained in enumerate(nodes):
            trained.train(Part(node))
            batch = trained.batches[t]
            sums = sums_by_hand(by_hand[node], x[node::3][batch], y[node::3][batch])
            by_hand[node] = {
                name: part - rate / 500 * sums[name] for name, part in by_hand[node].items()
            }
        by_hand = averaged(by_hand)
        mixed = averaged([numbers(trained.model) for trained in nodes])
        for trained, values in zip(nodes, mixed, strict=True):
            parts = values["hidden"].T, values["bias"], values["out"], values["shift"]
            vector = np.concatenate([part.ravel() for part in parts])
            torch.nn.utils.vector_to_parameters(
                torch.from_numpy(vector).float(), trained.model.parameters()
            )
    for trained, right in zip(nodes, by_hand, strict=True):
        majority, best = float(np.mean(y <= 0)), accuracy(right, x, y)
        found = accuracy(numbers(trained.model), x, y)
        assert best > majority + 0.03
        assert found > (majority + best) / 2


def test_gradients_are_clipped_one_by_one(tmp_path: Path) -> None:
    """At a scale where noise is nothing beside them, were they not clipped."""
    trained = training(exported(design("space"), tmp_path))
    trained.train(Data(scale=1e6))
    noise = calibrate(design("space").problem).noise_stddev
    assert trained.model.weight.abs().max() < (TARGET.clip * BATCH + 20 * noise) / BATCH


def test_batches_of_random_participation_are_drawn_by_the_node(tmp_path: Path) -> None:
    """Some are empty: their step has noise alone. Whoever has the secret of the run knows them."""
    scheme = nd.participation.BallsInBins(epochs=1, separation=6)
    for node in range(3):
        plan = replace(random_plan(scheme), node=node, nodes=3)
        plan.save(tmp_path / f"run-{node}.plan")
    secret(1).save(tmp_path / "run.secret")
    plans = str(tmp_path / "run")
    drawn = []
    for node in range(2):
        trained = training(plans, node, batch_size=1, model=Linear1(50))
        for _ in range(6):
            trained.train(Data(size=50))
        with pytest.raises(InputError, match="step: expected 0 to 5"):
            trained.train(Data(size=50))
        drawn.append([batch.tolist() for batch in trained.batches])
    assert any(not batch for batches in drawn for batch in batches)
    assert drawn[0] != drawn[1]
    for batches in drawn:
        assert sorted(itertools.chain.from_iterable(batches)) == list(range(RECORDS))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"full_epochs": True}, "full_epochs: expected False"),
        ({"shuffle": True}, "shuffle: expected False"),
        ({"batch_size": 0}, "batch_size: expected"),
        ({"rounds": 1.5}, "rounds: expected"),
        ({"secret": ""}, r"secret: expected the file of the run's secret.*got none"),
        ({"secret": "nowhere"}, "secret: expected a file nowhere"),
        ({"mapping": Linear(1, 4)}, "plans: expected the file of node 0 of 4"),
        ({"model": torch.nn.BatchNorm1d(3)}, "model: expected no buffers, got running_mean"),
        ({"plans": "nowhere"}, "plan: expected a file nowhere-0.plan"),
    ],
)
def test_what_would_break_privacy_is_refused(
    wrong: dict[str, Any], words: str, tmp_path: Path
) -> None:
    plans = exported(design("decor"), tmp_path)
    how = dict(wrong)
    with pytest.raises(InputError, match=words):
        training(how.pop("plans", plans), **how)


def test_other_batches_than_designed_are_refused(tmp_path: Path) -> None:
    plans = exported(design("time"), tmp_path)
    for batch_size in (2, 6):  # three batches an epoch, or one
        trained = training(plans, batch_size=batch_size)
        with pytest.raises(InputError, match="batch_size"):
            trained.train(Data())
    trained = training(plans)
    trained.train(Data())
    with pytest.raises(InputError, match="dataset: expected 6 records"):
        trained.train(Data(records=7))


def test_another_run_needs_another_secret(tmp_path: Path) -> None:
    plans = exported(design("decor"), tmp_path)
    training(plans).train(Data())
    with pytest.raises(InputError, match=r"secret: expected one that no run has used"):
        training(plans).train(Data())


def test_models_are_averaged_with_the_designed_weights(tmp_path: Path) -> None:
    weights = np.array([[0.5, 0.5, 0], [0.2, 0.5, 0.3], [0, 0.4, 0.6]])
    problem = nd.TimeProblem.decentralized(mixing=weights, participation=SCHEME, privacy=TWICE)
    plans = exported(nd.solve(problem).design, tmp_path)
    graph = Graph()
    graph.read_graph_from_file(f"{plans}.edges")
    mapping = Linear(1, 3)
    models = [torch.nn.Linear(2, 2) for _ in range(3)]
    shared = [
        adapter.DesignedSharing(
            u, 0, None, mapping, graph, models[u], None, ".", plans=plans, compress=False
        )
        for u in range(3)
    ]
    before = np.array([m.weight.detach().double().numpy() for m in models])
    sent = [s.get_data_to_send() | {"CHANNEL": "DPSGD"} for s in shared]
    sent = [s | {"params": s["params"].copy()} for s in sent]
    for u in range(3):
        queue = {v: SimpleNamespace(popleft=dict(sent[v]).copy) for v in graph.neighbors(u)}
        shared[u]._averaging(queue)
    after = np.array([m.weight.detach().double().numpy() for m in models])
    np.testing.assert_allclose(after, np.tensordot(weights, before, axes=1), rtol=1e-6)
    assert [s.communication_round for s in shared] == [1, 1, 1]
    path = Graph(3)
    path.adj_list = [{1}, {0}, set()]
    with pytest.raises(InputError, match=r"graph: expected links of node 1 to \[2\]"):
        adapter.DesignedSharing(1, 0, None, mapping, path, models[1], None, ".", plans=plans)


DATASET = """
import torch
from decentralizepy.datasets.Dataset import Dataset
from decentralizepy.models.Model import Model

class Vectors(Dataset):
    def __init__(self, rank, machine_id, mapping, random_seed=1, train_dir="x", **_):
        super().__init__(rank, machine_id, mapping, train_dir=train_dir, test_dir="x")
        x = torch.randn(6, 4, generator=torch.Generator().manual_seed(self.uid))
        self.set = torch.utils.data.TensorDataset(x, x.sum(dim=1, keepdim=True))

    def get_trainset(self, batch_size=1, shuffle=False):
        return torch.utils.data.DataLoader(self.set, batch_size=batch_size, shuffle=shuffle)

    get_testset = get_trainset

    def test(self, model, loss):
        return 0.0, 0.0

class Line(Model):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.linear(x)
"""

CONFIG = """[DATASET]
dataset_package = vectors
dataset_class = Vectors
model_class = Line

[OPTIMIZER_PARAMS]
optimizer_package = torch.optim
optimizer_class = SGD
lr = 0.01

[TRAIN_PARAMS]
training_package = decentralizepy.training.Training
training_class = Training
rounds = 3
full_epochs = False
batch_size = 3
shuffle = True
loss_package = torch.nn
loss_class = MSELoss

[COMMUNICATION]
comm_package = decentralizepy.communication.TCP
comm_class = TCP
addresses_filepath = {folder}/ip.json
offset = {offset}

[SHARING]
sharing_package = decentralizepy.sharing.Sharing
sharing_class = Sharing
"""

NODES = """
import logging, sys
from localconfig import LocalConfig
from torch import multiprocessing as mp
from decentralizepy.graphs.Graph import Graph
from decentralizepy.mappings.Linear import Linear
from decentralizepy.node.DPSGDNode import DPSGDNode

if __name__ == "__main__":
    config = LocalConfig(sys.argv[1] + ".config.ini")
    config = {section: dict(config.items(section)) for section in config}
    graph = Graph()
    graph.read_graph_from_file(sys.argv[1] + ".edges")
    how = [Linear(1, 3), graph, config, int(sys.argv[2]), ".", ".", logging.INFO, 1, 1, 1]
    nodes = [mp.Process(target=DPSGDNode, args=[rank, 0, *how]) for rank in range(3)]
    for node in nodes:
        node.start()
    for node in nodes:
        node.join()
    sys.exit(max(node.exitcode for node in nodes))
"""
"""What eval/testing.py of the trainer does with a config file, a graph and a number of steps."""


def free_offset() -> int:
    """A port P whose P + 1, P + 3, P + 5 are likely to be free, as the nodes take them."""
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        return int(taken.getsockname()[1]) - 1


def test_nodes_of_the_trainer_run_to_the_horizon_and_no_further(tmp_path: Path) -> None:
    found = design("decor")
    main, config, *_ = nd.export(found, to="decentralizepy", path=tmp_path / "run.json")
    said = json.loads(main.read_text("utf-8"))
    assert said["commands"][0].startswith("crudini --merge")
    merged = configparser.ConfigParser()
    merged.read_string(CONFIG.format(folder=tmp_path, offset=free_offset()))
    merged.read_string(config.read_text())  # as crudini --merge: key by key
    with (tmp_path / "run.config.ini").open("w") as file:
        merged.write(file)
    (tmp_path / "ip.json").write_text('{"0": "localhost"}')
    (tmp_path / "vectors.py").write_text(DATASET)
    (tmp_path / "nodes.py").write_text(NODES)
    Secret.new().save(tmp_path / "run.secret")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "nodes.py", str(tmp_path / "run"), "4"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = [json.loads((tmp_path / f"{rank}_results.json").read_text()) for rank in range(3)]
    assert all(len(result["total_bytes"]) == 4 for result in results)
    trainer_row(
        "decentralizepy",
        packages=("torch", "numpy"),
        works=[
            "its nodes over sockets, to the horizon",
            "a config of `export --to decentralizepy`, and its W",
            "random batches",
        ],
        refuses=["`full_epochs`, `shuffle`", "models with buffers", "a secret that served a run"],
        cost="not measured",
    )
