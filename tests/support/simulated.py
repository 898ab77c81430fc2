"""The variance of noise of single matrices, put to the simulator."""

from __future__ import annotations

from typing import Any

from noisedesign.forms import Noise
from noisedesign.forms.streams import time_noise_stream
from noisedesign.system.workloads import ErrorMeasure
from noisedesign.tasks.simulation.variance import VarianceReport, simulate_variance


def simulate_space(*, covariance: Any, **options: Any) -> VarianceReport:
    """One step of noise of a covariance."""
    return simulate_variance(
        noise=lambda columns, seed: Noise.of_covariance(covariance).stream(
            dimension=columns, steps=1, seed=seed
        ),
        error=ErrorMeasure(horizon=1),
        **options,
    )


def simulate_time(*, noising_matrix: Any, mixing: Any = None, **options: Any) -> VarianceReport:
    """A run whose nodes each draw noise from C^-1."""
    return simulate_variance(
        noise=lambda columns, seed: time_noise_stream(
            noising_matrix, nodes=1 if mixing is None else len(mixing), dimension=columns, seed=seed
        ),
        error=ErrorMeasure(horizon=len(noising_matrix)),
        mixing=mixing,
        **options,
    )
