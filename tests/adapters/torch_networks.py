"""The network over a9a that tests of several trainers on PyTorch train, and its arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.trainers import CLIP, FEATURES, sums_by_hand

RATE = 8.0


def network() -> Any:
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(FEATURES, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)
    )


def flat(module: Any) -> np.ndarray:
    return np.concatenate([p.detach().double().numpy().ravel() for p in module.parameters()])


def numbers(module: Any) -> dict[str, np.ndarray]:
    hidden, bias, out, shift = (p.detach().double().numpy() for p in module.parameters())
    return {"hidden": hidden.T, "bias": bias, "out": out[0], "shift": shift[0]}


def by_hand(module: Any, x: Any, y: Any, clip: float = CLIP) -> np.ndarray:
    """The sum of clipped gradients, in the order of the module's parameters."""
    found = sums_by_hand(numbers(module), x.numpy(), y.numpy(), clip=clip)
    return np.concatenate([found[name].T.ravel() for name in found])
