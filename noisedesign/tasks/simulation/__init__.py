"""Validation of exported matrices: D-SGD run with their noise, in numpy and nothing else."""

from noisedesign.program.noise.space_time_streams import block_noise, kronecker_noise_stream
from noisedesign.program.noise.streams import space_noise_stream, time_noise_stream
from noisedesign.tasks.simulation.audit import AuditReport, audit_space, audit_time
from noisedesign.tasks.simulation.coalition import audit_coalition, worst_coalition
from noisedesign.tasks.simulation.objective_variance import NoiseSource, simulate_objective
from noisedesign.tasks.simulation.observer_audit import Watcher, audit_observers
from noisedesign.tasks.simulation.variance import VarianceReport, simulate_space, simulate_time

__all__ = [
    "AuditReport",
    "NoiseSource",
    "VarianceReport",
    "Watcher",
    "audit_coalition",
    "audit_observers",
    "audit_space",
    "audit_time",
    "block_noise",
    "kronecker_noise_stream",
    "simulate_objective",
    "simulate_space",
    "simulate_time",
    "space_noise_stream",
    "time_noise_stream",
    "worst_coalition",
]
