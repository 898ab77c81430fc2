"""FedML by its interface, which is played here as its source defines it: it is not run.

Of version 0.9 at commit 03e11dfe. Where ``NOISEDESIGN_FEDML`` names a folder with the source, what
is played is compared with that."""

from __future__ import annotations

import ast
import inspect
from abc import ABC, abstractmethod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from noisedesign import InputError
from noisedesign.adapters.update import NoisyUpdate
from tests.support import pages
from tests.support.adapters import check_noise, designed_covariance
from tests.support.clones import clone
from tests.support.trainer_rows import trainer_row
from tests.support.trainers import CLIP, node_noise, prefix_design

torch = pytest.importorskip("torch", reason="FedML's trainers are of torch")

STEPS, CLIENTS = 3, 2
EVERY = {"epochs": STEPS, "separation": 1}


class ClientTrainer(ABC):
    """python/fedml/core/alg_frame/client_trainer.py, without attacks and encryption."""

    def __init__(self, model: Any, args: Any) -> None:
        self.model = model
        self.id = 0
        self.args = args

    def set_id(self, trainer_id: int) -> None:
        self.id = trainer_id

    @abstractmethod
    def get_model_params(self) -> Any: ...

    @abstractmethod
    def set_model_params(self, model_parameters: Any) -> None: ...

    @abstractmethod
    def train(self, train_data: Any, device: Any, args: Any) -> None: ...


class ModelTrainerCLS(ClientTrainer):
    """python/fedml/ml/trainer/my_model_trainer_classification.py, with a step by hand."""

    def get_model_params(self) -> Any:
        return self.model.cpu().state_dict()

    def set_model_params(self, model_parameters: Any) -> None:
        self.model.load_state_dict(model_parameters)

    def train(self, train_data: Any, device: Any, args: Any) -> None:
        with torch.no_grad():
            for p in self.model.parameters():
                p += train_data  # in place, as optimizers do


class Client:
    """python/fedml/simulation/sp/fedavg/client.py."""

    def __init__(
        self, local_training_data: Any, args: Any, device: Any, model_trainer: Any
    ) -> None:
        self.local_training_data = local_training_data
        self.args, self.device, self.model_trainer = args, device, model_trainer

    def train(self, w_global: Any) -> Any:
        self.model_trainer.set_model_params(w_global)
        self.model_trainer.train(self.local_training_data, self.device, self.args)
        return self.model_trainer.get_model_params()


PLAYED = {
    "python/fedml/core/alg_frame/client_trainer.py": ClientTrainer,
    "python/fedml/ml/trainer/my_model_trainer_classification.py": ModelTrainerCLS,
    "python/fedml/simulation/sp/fedavg/client.py": Client,
}


@pytest.mark.parametrize("path", PLAYED)
def test_what_is_played_is_as_the_source_has_it(path: str) -> None:
    source, played = Path(clone("FedML"), path).read_text("utf-8"), PLAYED[path]
    (found,) = (
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and node.name == played.__name__
    )
    assert [base.id for base in found.bases if isinstance(base, ast.Name)] == [
        base.__name__ for base in played.__bases__ if base is not object
    ]
    theirs = {part.name: part for part in found.body if isinstance(part, ast.FunctionDef)}
    for name, function in vars(played).items():
        if inspect.isfunction(function) and name != "__init__":
            arguments = [one.arg for one in theirs[name].args.args]
            assert list(inspect.signature(function).parameters) == arguments
    if played is Client:  # in this order
        calls = [
            node.func.attr
            for node in ast.walk(theirs["train"])
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        ]
        assert calls == ["set_model_params", "train", "get_model_params"]


def trainer_of_the_guide(model: Any, args: Any) -> Any:
    scope = {"MyTrainer": ModelTrainerCLS, "torch": torch}
    exec(pages.examples("docs/guides/noisy-updates.md", "FedML", "py"), scope)
    made = scope["NoisyTrainer"](model, args)
    made.noisy = {
        u: NoisyUpdate(node_noise(prefix_design(**EVERY), u + 1), clip=CLIP, unit="node")
        for u in range(CLIENTS)
    }
    return made


def test_clients_send_clipped_updates_with_designed_noise() -> None:
    model, args = torch.nn.Linear(2000, 1, dtype=torch.float64), SimpleNamespace()
    trainer = trainer_of_the_guide(model, args)
    weights = {k: torch.zeros_like(v) for k, v in model.state_dict().items()}
    d = sum(v.numel() for v in weights.values())
    drawn = np.empty((STEPS, CLIENTS, d))
    for t in range(STEPS):
        sent = []
        for u in range(CLIENTS):
            trainer.set_id(u)
            found = Client(3.0, args, "cpu", trainer).train(weights)
            sent.append({k: v.clone() for k, v in found.items()})
            moved = np.concatenate([(sent[u][k] - weights[k]).numpy().ravel() for k in weights])
            drawn[t, u] = moved - CLIP / d**0.5  # all entries moved by 3
        weights = {k: sum(one[k] for one in sent) / CLIENTS for k in weights}
    check_noise(designed_covariance(prefix_design(**EVERY)), drawn.reshape(STEPS, -1))
    trainer.set_id(0)
    with pytest.raises(InputError, match=f"step: expected 0 to {STEPS - 1}"):
        Client(3.0, args, "cpu", trainer).train(weights)
    for name, value in trainer.get_model_params().items():  # nothing is left of what was refused
        assert torch.equal(value, weights[name])
    trainer_row(
        "FedML",
        packages=(),
        works=["a `ClientTrainer` with noise, one client protected"],
        refuses=["rounds past the horizon", "what `NoisyUpdate` refuses"],
        cost="not run",
    )


def test_buffers_that_count_are_refused() -> None:
    trainer = trainer_of_the_guide(torch.nn.BatchNorm1d(3), SimpleNamespace())
    weights = {k: v.clone() for k, v in trainer.model.state_dict().items()}
    with pytest.raises(InputError, match="num_batches_tracked"):
        Client(1.0, None, "cpu", trainer).train(weights)
