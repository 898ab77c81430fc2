"""Losses with exact gradients of single examples, clipped one by one and summed over a batch."""

from noisedesign_lab.training.losses.loss import Batch, Loss
from noisedesign_lab.training.losses.models import MLP, Logistic, MatrixFactorization
from noisedesign_lab.training.losses.quadratics import Quadratic, Quadratics, whisper_quadratics

__all__ = [
    "MLP",
    "Batch",
    "Logistic",
    "Loss",
    "MatrixFactorization",
    "Quadratic",
    "Quadratics",
    "whisper_quadratics",
]
