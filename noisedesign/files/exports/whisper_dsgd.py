"""WhisperDSGD, the trainer of Whisper D-SGD: its covariance and weight matrices.

Every round it draws one vector a model parameter from N(0, covariance_matrix) over the nodes and
adds entry i to the SUM of node i's per-example clipped gradients: the protected unit is one
example, which may be in all rounds, as every round shuffles the data again."""

from __future__ import annotations

from pathlib import Path

from noisedesign.base.atomic import write_bytes
from noisedesign.base.checks import InputError
from noisedesign.design.design import Design, fixed_mixing
from noisedesign.files.archive import NPY, npy_bytes, pack
from noisedesign.files.exported import to_json, trainer_facts
from noisedesign.problem.calibration import calibration_of

ACCEPTS = ("space",)
DESCRIPTION = "covariance_matrix and weight_matrix of WhisperDSGD, in one node order (.npz)"

_NOTE = (
    "covariance_matrix is DPNoiseGenerator.noise_params, weight_matrix is "
    "DecentralizedAggregator.weight_matrix, in the order of nodes. Clients are numbered as "
    "os.listdir lists their folders, an order that no system promises: compare before you run. "
    "Noise goes to the batch sum of per-example clipped gradients (microbatch size 1)."
)


def export(design: Design, path: Path, *, problem_text: str = "") -> tuple[Path, ...]:
    """Write ``covariance_matrix``, noise_stddev^2 R, and ``weight_matrix``, W, both (n, n), and
    ``metadata``, a JSON string. Without a privacy target the covariance is R at the budgets."""
    found = calibration_of(design.problem)
    scheme = found.participation
    if scheme is not None and scheme.largest_size < scheme.horizon:
        expected = "every step: the trainer shuffles before each, and an example may be in all"
        remedy = "State steps in [privacy] without [participation], as every step is then."
        raise InputError("participation", expected=expected, got=str(scheme), remedy=remedy)
    metadata = trainer_facts(design, note=_NOTE, problem_text=problem_text)
    metadata["protected_unit"] = "one example"
    members = {
        "covariance_matrix": found.noise_stddev**2 * design.covariance,
        "weight_matrix": fixed_mixing(design),
        "metadata": to_json(metadata),
    }
    content = pack({name + NPY: npy_bytes(value) for name, value in members.items()})
    return (write_bytes(path, content),)
