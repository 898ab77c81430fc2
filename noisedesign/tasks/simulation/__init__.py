"""Exported matrices put to work: D-SGD run with their noise, in numpy and nothing else."""

from noisedesign.tasks.simulation.attacks import (
    Watcher,
    audit_coalition,
    audit_observers,
    audit_space,
    audit_time,
    worst_coalition,
)
from noisedesign.tasks.simulation.audit import AuditReport
from noisedesign.tasks.simulation.variance import Source, VarianceReport, simulate_variance

__all__ = [
    "AuditReport",
    "Source",
    "VarianceReport",
    "Watcher",
    "audit_coalition",
    "audit_observers",
    "audit_space",
    "audit_time",
    "simulate_variance",
    "worst_coalition",
]
