"""What is exported of a streaming design: a strategy in a few numbers, for any horizon."""

from __future__ import annotations

from dataclasses import asdict
from math import sqrt
from typing import Any

from noisedesign.families.toeplitz import StreamingDesign
from noisedesign.files.exports._common import json_values, privacy_facts
from noisedesign.files.exports._content import Exported, calibrated_content
from noisedesign.program.calibration import calibration
from noisedesign.program.noise import Noise, form_of_strategy


def streaming_content(
    design: StreamingDesign, *, calibrated: bool | None, problem_text: str
) -> Exported:
    """Its strategy at unit sensitivity, or scaled to its privacy target.

    Raises:
        InputError: asked to calibrate without a target.
    """
    form = form_of_strategy(design.strategy, horizon=design.horizon)
    noise = Noise(steps=design.horizon, strategy=form.scaled(sqrt(design.squared_sensitivity)))
    found = calibration(design.privacy, participation=design.participation)
    bound = design.lower_bound_of_unrestricted_optimum
    known: dict[str, Any] = {
        "name": design.name,
        "design": design.axes,
        "nodes": [],
        "objective": design.objective,
        "lower_bound": bound,
        "gap": design.excess_upper_bound,
        "sensitivity_squared": 1.0,
        "sensitivity_kind": design.sensitivity_kind,
        "trust": "local",
        "privacy": None if design.privacy is None else asdict(design.privacy),
        "problem": problem_text,
    }
    known = json_values(known | privacy_facts(found))
    return calibrated_content(noise, known, found, calibrated=calibrated, beside={})
