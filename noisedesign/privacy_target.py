"""What privacy a run is to have, in the words people state it in."""

from __future__ import annotations

from dataclasses import dataclass

from noisedesign import _checks

ADJACENCIES = ("replace", "zero-out")
CONVERSIONS = ("gdp", "rdp")


@dataclass(frozen=True, kw_only=True)
class PrivacyTarget:
    """The (epsilon, delta) a run is to meet, and what one record can do to it.

    ``clip`` bounds the Euclidean norm of one record's gradient at one step. Under ``replace``
    adjacency one record becomes another and a step moves by up to 2 clip; under ``zero-out`` it
    is deleted and a step moves by up to clip. ``steps`` counts the independent rounds a spatial
    design is used for; a temporal design carries its own horizon. ``conversion`` is ``gdp``
    (exact for the Gaussian mechanism) or ``rdp`` (the rule published with Whisper D-SGD).

    Raises:
        InputError: epsilon <= 0, delta outside (0, 1), clip <= 0, steps < 1, unknown words.
    """

    epsilon: float
    delta: float
    clip: float = 1.0
    steps: int | None = None
    adjacency: str = "replace"
    conversion: str = "gdp"

    def __post_init__(self) -> None:
        _checks.real(self.epsilon, field="privacy.epsilon", low=0)
        _checks.real(self.delta, field="privacy.delta", low=0, high=1)
        _checks.real(self.clip, field="privacy.clip", low=0)
        if self.steps is not None:
            _checks.positive_int(self.steps, field="privacy.steps")
        _checks.one_of(self.adjacency, field="privacy.adjacency", allowed=ADJACENCIES)
        _checks.one_of(self.conversion, field="privacy.conversion", allowed=CONVERSIONS)

    @property
    def step_sensitivity(self) -> float:
        """Largest Euclidean change of one step's gradient (not squared): 2 clip or clip."""
        return 2 * self.clip if self.adjacency == "replace" else self.clip
