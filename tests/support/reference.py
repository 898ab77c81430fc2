"""The public names, by the modules that a user imports them from."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

NAMES: dict[str, str] = {
    "noisedesign": "",
    "noisedesign.graphs": "",
    "noisedesign.noise": "",
    "noisedesign.observers": "",
    "noisedesign.participation": "",
    "noisedesign.privacy": "",
    "noisedesign.results": "",
    "noisedesign.adapters.run": "Run",
    "noisedesign.conic.formats": "write",
    "noisedesign.families.toeplitz.solver": "optimize_banded_inverse optimize_buffered "
    "optimize_toeplitz",
    "noisedesign.files.exports": "",
    "noisedesign.files.exports.seeds": "read_plan",
    "noisedesign.privacy.seeds": "SeedPlan SharedSeed",
    "noisedesign.privacy.views": "Algorithm antipgd cdp decor dp_d_sgd mf_d_sgd muffliato "
    "space_time whisper zip_dl",
    "noisedesign.families.toeplitz.streaming": "StreamingDesign",
    "noisedesign.system.directed": "build_digraph directed_mixing",
    "noisedesign.system.workloads": "decentralized_gram prefix_gram",
    "noisedesign.system.workloads.toeplitz": "GramWorkload PoleWorkload gossip_workload "
    "prefix_workload",
    "noisedesign.tasks.model": "conic_program",
    "noisedesign_lab": "",
    "noisedesign_lab.training.losses": "Logistic MLP MatrixFactorization Quadratics "
    "ResNet whisper_quadratics",
    "noisedesign_lab.training.partition": "Standardization by_user dirichlet iid split",
}
"""Module -> the names that the pages of the reference list; none: those of its ``__all__``."""

GIVEN: dict[str, str] = {
    "noisedesign.base.monitor": "Bounds",
    "noisedesign.files.design_file": "StoredDesign StoredStreamingDesign",
    "noisedesign.files.problem_file": "LoadedProblem Reference",
    "noisedesign.files.problem_set": "ShippedProblem",
    "noisedesign.surveys.sweep_file": "Sweep SweepRow",
    "noisedesign.privacy.ledger": "Entry",
    "noisedesign.design.design": "Provenance",
    "noisedesign.design.prefix": "PrivacySoFar",
    "noisedesign.certify.program": "DualPoint",
    "noisedesign.tasks.account.request": "AccountRequest",
    "noisedesign.surveys.compare": "Comparison",
    "noisedesign.tasks.dropout": "Others",
    "noisedesign.tasks.simulation.audit": "AuditReport",
    "noisedesign.tasks.simulation.variance": "VarianceReport",
    "noisedesign.surveys.sweep": "Summary",
    "noisedesign.tasks.verify": "Check",
}
"""What public functions give, which nobody imports."""

ADAPTERS: dict[str, str] = {
    "noisedesign.adapters.alone": "Alone clip_factors",
    "noisedesign.adapters.decentralizepy": "NoisyTraining DesignedSharing plan_at",
    "noisedesign.adapters.flower": "DesignedNoise dropout_metrics",
    "noisedesign.adapters.huggingface": "DesignedTrainer Designed",
    "noisedesign.adapters.jax_privacy": "Training streaming_matrix",
    "noisedesign.adapters.lightning": "DesignedNoise",
    "noisedesign.adapters.opacus": "Engine DesignedOptimizer RoundBatches RoundLoader Accountant",
    "noisedesign.adapters.opake": "DesignedStrategy",
    "noisedesign.adapters.pfl": "DesignedMechanism",
    "noisedesign.adapters.pytorch": "Gradients add_to",
    "noisedesign.noise.device": "DeviceNoise",
}
"""The same of modules that need a trainer."""

TRAINERS = (
    "decentralizepy", "flwr", "jax", "jax_privacy", "lightning", "opacus", "opake", "optax", "pfl",
    "torch", "transformers",
)  # fmt: skip


def reference() -> dict[str, Any]:
    """Every public name, with its module, and what it is."""
    return _listed(NAMES)


def given() -> dict[str, Any]:
    """Classes of what public functions give."""
    return _listed(GIVEN)


def adapters() -> dict[str, Any]:
    """The same of adapters, where nothing stands for what their trainers have: they are to be read
    and not to be run."""
    from sphinx.ext.autodoc.mock import mock

    loaded = {path: sys.modules.pop(path) for path in _of_trainers()}
    try:
        with mock(list(TRAINERS)):
            return _listed(ADAPTERS)
    finally:
        for path in _of_trainers():
            del sys.modules[path]
        sys.modules.update(loaded)


def _of_trainers() -> list[str]:
    """The modules that are loaded and import a trainer."""
    return [p for p in sys.modules if any(f"{p}.".startswith(f"{of}.") for of in ADAPTERS)]


def _listed(modules: dict[str, str]) -> dict[str, Any]:
    found = {}
    for path, names in modules.items():
        module = import_module(path)
        for name in names.split() or module.__all__:
            if not isinstance(value := getattr(module, name), ModuleType):
                found[f"{path}.{name}"] = value
    return found
