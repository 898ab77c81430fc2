"""GossiPy's simulator, whose nodes add noise to what they send; it is in no package index."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support import pages
from tests.support.adapters import check_noise, designed_covariance
from tests.support.clones import clone
from tests.support.trainer_rows import trainer_row
from tests.support.trainers import CLIP, a9a, prefix_design, secret

pytest.importorskip("torch", reason="GossiPy is a program of torch")
for needed in ("dill", "pandas", "sklearn"):
    pytest.importorskip(needed, reason=f"GossiPy needs {needed}")

NODES, STEPS, FEATURES, RECORDS = 4, 3, 2000, 400
EVERY = {"epochs": STEPS, "separation": 1}
SCRIPT = """
import copy, sys
import networkx as nx
import numpy as np
import torch
from gossipy import set_seed
from gossipy.core import AntiEntropyProtocol, CreateModelMode, StaticP2PNetwork
from gossipy.data import DataDispatcher
from gossipy.data.handler import ClassificationDataHandler
from gossipy.model import TorchModel
from gossipy.model.handler import TorchModelHandler
from gossipy.node import GossipNode
from gossipy.simul import GossipSimulator, SimulationReport
from noisedesign.adapters.update import NoisyUpdate
from noisedesign.noise import noise

{glue}

class Logistic(TorchModel):
    def __init__(self, features):
        super().__init__()
        self.layer = torch.nn.Linear(features, 3)  # of two it asks old versions of scikit-learn
    def init_weights(self):
        torch.nn.init.zeros_(self.layer.weight)
        torch.nn.init.zeros_(self.layer.bias)
    def forward(self, x):
        return self.layer(x)

def flat(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()]).numpy().copy()

class Kept(NoisyHandler):
    def _update(self, data):
        at, before = NOISY[self.node].run.step, flat(self.model)
        super()._update(data)
        if at < NOISY[self.node].run.horizon:
            np.savez(f"sent-{{self.node}}-{{at}}.npz", before=before, after=flat(self.model))
        else:
            assert (flat(self.model) == before).all()

set_seed(1)
torch.set_num_threads(1)
with np.load("records.npz") as stored:
    x, y = torch.from_numpy(stored["x"]), torch.from_numpy(stored["y"]).long()
nodes = 4
data = ClassificationDataHandler(x, y, test_size=0.2)
dispatcher = DataDispatcher(data, n=nodes, eval_on_user=False, auto_assign=True)
handler = Kept(
    net=Logistic(x.shape[1]), optimizer=torch.optim.SGD, optimizer_params={{"lr": 1.0}},
    criterion=torch.nn.CrossEntropyLoss(), local_epochs=1, batch_size=0,
    create_model_mode=getattr(CreateModelMode, sys.argv[1]),
)
network = StaticP2PNetwork(nodes, topology=nx.to_numpy_array(nx.cycle_graph(nodes)))
made = GossipNode.generate(
    data_dispatcher=dispatcher, p2p_net=network, model_proto=handler, round_len=10, sync=True
)
for u, node in made.items():
    node.model_handler.node = u
    source = noise(f"{{u}}.plan", secret=f"{{u}}.secret", record=f"{{u}}.sqlite3")
    NOISY[u] = NoisyUpdate(source, clip=0.5, unit="node")
    np.savez(f"data-{{u}}.npz", x=node.data[0][0], y=node.data[0][1])
simulator = GossipSimulator(
    nodes=made, data_dispatcher=dispatcher, delta=10, protocol=AntiEntropyProtocol.PUSH
)
simulator.add_receiver(SimulationReport())
simulator.init_nodes(seed=1)
simulator.start(n_rounds=8)
"""


def run(folder: Path, mode: str) -> subprocess.CompletedProcess[str]:
    glue = pages.examples("docs/guides/noisy-updates.md", "GossiPy", "py")
    (folder / "gossip.py").write_text(SCRIPT.format(glue=glue), encoding="utf-8")
    x, y = a9a(NODES * RECORDS)
    rng = np.random.default_rng(3)
    made = np.tanh(x @ rng.normal(size=(x.shape[1], FEATURES)) / 3) / FEATURES**0.5
    np.savez(folder / "records.npz", x=made.astype(np.float32), y=y)
    for u in range(NODES):
        prefix_design(**EVERY).node_plan(0).save(folder / f"{u}.plan")
        secret(u).save(folder / f"{u}.secret")
    path = os.pathsep.join([str(clone("GossiPy")), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "gossip.py", mode],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )


def trained(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """One step on the mean cross entropy of all records of a node, by hand."""
    w, b = weights[:-3].reshape(3, -1), weights[-3:]
    logits = x @ w.T + b
    chances = np.exp(logits - logits.max(1, keepdims=True))
    wrong = chances / chances.sum(1, keepdims=True) - np.eye(3)[y]
    return weights - np.concatenate([(wrong.T @ x / len(y)).ravel(), wrong.mean(0)])


def test_nodes_that_gossip_send_designed_noise_and_train_no_further(tmp_path: Path) -> None:
    done = run(tmp_path, "MERGE_UPDATE")
    assert done.returncode == 0, done.stderr[-3000:]
    drawn = np.empty((STEPS, NODES, 3 * FEATURES + 3))
    for u in range(NODES):
        with np.load(tmp_path / f"data-{u}.npz") as stored:
            x, y = stored["x"].astype(np.float64), stored["y"]
        assert len(list(tmp_path.glob(f"sent-{u}-*.npz"))) == STEPS
        for t in range(STEPS):
            with np.load(tmp_path / f"sent-{u}-{t}.npz") as stored:
                before, after = stored["before"].astype(float), stored["after"].astype(float)
            update = trained(x, y, before) - before
            update *= min(1.0, CLIP / np.linalg.norm(update))
            drawn[t, u] = after - before - update
    check_noise(designed_covariance(prefix_design(**EVERY)), drawn.reshape(STEPS, -1))
    trainer_row(
        "GossiPy",
        packages=("torch", "numpy"),
        works=["its simulator, one node protected, until the horizon; then nodes only merge"],
        refuses=[
            "modes in which a node trains the handler of another",
            "what `NoisyUpdate` refuses",
        ],
        cost="one addition an update, not measured",
    )


def test_a_node_that_trains_the_handler_of_another_is_refused(tmp_path: Path) -> None:
    """It would put the other's noise on its own data."""
    done = run(tmp_path, "UPDATE")
    assert done.returncode != 0
    assert "MERGE_UPDATE" in done.stderr
