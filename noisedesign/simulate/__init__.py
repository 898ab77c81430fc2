"""Validation of exported matrices: D-SGD run with their noise, in numpy and nothing else."""

from noisedesign.simulate.audit import AuditReport, audit_space, audit_time
from noisedesign.simulate.objective_variance import NoiseSource, simulate_objective
from noisedesign.simulate.space_time_streams import block_noise, kronecker_noise_stream
from noisedesign.simulate.streams import space_noise_stream, time_noise_stream
from noisedesign.simulate.variance import VarianceReport, simulate_space, simulate_time

__all__ = [
    "AuditReport",
    "NoiseSource",
    "VarianceReport",
    "audit_space",
    "audit_time",
    "block_noise",
    "kronecker_noise_stream",
    "simulate_objective",
    "simulate_space",
    "simulate_time",
    "space_noise_stream",
    "time_noise_stream",
]
