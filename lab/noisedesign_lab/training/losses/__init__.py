"""Losses with exact gradients of single examples, clipped one by one and summed over a batch."""

from noisedesign_lab.training.losses.images import ResNet
from noisedesign_lab.training.losses.loss import Batch, Loss
from noisedesign_lab.training.losses.models import MLP, LeastSquares, Logistic, MatrixFactorization
from noisedesign_lab.training.losses.quadratics import Quadratic, Quadratics, whisper_quadratics

__all__ = [
    "MLP",
    "Batch",
    "LeastSquares",
    "Logistic",
    "Loss",
    "MatrixFactorization",
    "Quadratic",
    "Quadratics",
    "ResNet",
    "whisper_quadratics",
]
