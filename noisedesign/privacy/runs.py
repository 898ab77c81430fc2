"""The model of a run: who may depend on what, and which theorem of docs/runs.md a number rests
on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError
from noisedesign.privacy.target import CLIPPINGS, KINDS, LOSSES, Clipping, Kind, Losses


class Theorem(NamedTuple):
    """A theorem of docs/runs.md."""

    number: int
    name: str

    def __str__(self) -> str:
        return f"theorem {self.number}: {self.name}"


SEEN = Theorem(1, "models are seen, gradients answer in any way")
ALL_MESSAGES = Theorem(2, "at most what a reader of all messages learns")
FIXED = Theorem(3, "responses are fixed")
SHIFTS = Theorem(4, "shifts of noise against responses of the declared losses")
DRAWN = Theorem(5, "models are seen, steps are drawn in secret")
THEOREMS = {theorem.number: theorem for theorem in (SEEN, ALL_MESSAGES, FIXED, SHIFTS, DRAWN)}

NOT_COVERED = (  # the sentence beside every number for fixed responses
    "fixed responses: gradients that answer to models, as in training, are not covered; other "
    "nodes' answers may carry a record further than this number says"
)


LEMMA = (  # the source of accounts of random participation, as errors name it
    'the domination lemma of Choquette-Choo et al. (2024), "Near exact privacy amplification for '
    'matrix mechanisms" (arXiv 2410.06266), which is for nonnegative strategies'
)


@dataclass(frozen=True, kw_only=True)
class Responses:
    """The class of answers that gradients other than the record's own give to their models.

    A node steps from x to x - eta G(x), G the sum of its gradients. Between two models that differ
    by d the results differ by D d with D about rho I: |result - rho d| <= radius |d|.

    Args:
        kind: "any" function at all; "convex" losses; "smooth" ones, whose gradients are Lipschitz;
            or "fixed": gradients answer to nothing unseen, which no training keeps to.
        smoothness: eta L, the learning rate times the Lipschitz constant of G, clipped as it is, no
            unit; of general convex losses clipped by record the *sum* of those of all records of
            a step, unclipped, as clipping mixes directions. Default 1 for "convex", needed for
            "smooth".
        convexity: eta m, the learning rate times what strong convexity is not clipped away, as that
            of weight decay; only for "convex".
        losses: "generalised-linear", h(<a, x>) with h convex for every record, or "general";
            clipping every record's gradient keeps only the former convex.
        clipping: whether gradients are clipped by "record", or "none" of those that answer.

    Raises:
        InputError: another word; numbers that are not positive, a convexity above the smoothness;
            numbers of another kind.

    Examples:
        >>> from noisedesign.privacy.runs import Responses
        >>> glm = Responses(kind="convex", losses="generalised-linear")
        >>> glm.rho, glm.radius  # a step of at most 1 / L contracts
        (0.5, 0.5)
    """

    kind: Kind = "any"
    smoothness: float | None = None
    convexity: float | None = None
    losses: Losses | None = None
    clipping: Clipping | None = None

    def __post_init__(self) -> None:
        _checks.one_of(self.kind, field="responses", allowed=KINDS)
        taken = {
            "any": (),
            "fixed": (),
            "smooth": ("smoothness",),
            "convex": ("smoothness", "convexity", "losses", "clipping"),
        }[self.kind]
        for key in ("smoothness", "convexity", "losses", "clipping"):
            if getattr(self, key) is not None and key not in taken:
                got = _checks.describe(getattr(self, key))
                raise InputError(key, expected=f'nothing for responses = "{self.kind}"', got=got)
        if self.kind == "smooth" and self.smoothness is None:
            expected = (
                'a number for responses = "smooth": the learning rate times the Lipschitz '
                "constant of the gradient a node steps along"
            )
            raise InputError("smoothness", expected=expected, got="nothing")
        if self.smoothness is not None:
            _checks.scale(self.smoothness, field="smoothness")
        if self.convexity is not None:
            _checks.nonnegative(self.convexity, field="convexity")
            if self.convexity > self._theta:
                expected = f"at most the smoothness, {self._theta:g}"
                raise InputError("convexity", expected=expected, got=f"{self.convexity:g}")
        if self.losses is not None:
            _checks.one_of(self.losses, field="losses", allowed=LOSSES)
        if self.clipping is not None:
            _checks.one_of(self.clipping, field="clipping", allowed=CLIPPINGS)
        if self._broken and self._theta - (self.convexity or 0.0) > 1:
            expected = "at most 1 (and the convexity) for general losses clipped by record"
            remedy = 'Take smaller steps, or say responses = "smooth".'
            raise InputError("smoothness", expected=expected, got=f"{self._theta:g}", remedy=remedy)

    @property
    def _theta(self) -> float:
        return 1.0 if self.smoothness is None else float(self.smoothness)

    @property
    def _broken(self) -> bool:
        """Whether clipping breaks convexity: every record's, outside generalised linear models."""
        clipped = (self.clipping or "record") == "record"
        return self.kind == "convex" and clipped and (self.losses or "general") == "general"

    @property
    def declared(self) -> bool:
        """Whether a loss class is declared, so that responses are known up to a ball."""
        return self.kind in ("convex", "smooth")

    @property
    def rho(self) -> float:
        """The middle of what d may become, over d."""
        if self.kind != "convex":
            return 1.0
        least = self.convexity or 0.0
        return 1 - least - (self._theta - least) / 2

    @property
    def radius(self) -> float:
        """The largest distance from it, over |d|; docs/mathematics/views.md, lemma 2."""
        match self.kind:
            case "any":
                return math.inf
            case "fixed":
                return 0.0
            case "smooth":
                return self._theta
        spread = self._theta - (self.convexity or 0.0)
        # Clipped outside of generalised linear models, attained in the limit: 1 / sqrt 2.
        return spread * math.sqrt(0.5) * (1 + 1e-15) if self._broken else spread / 2

    def __str__(self) -> str:
        if not self.declared:
            return self.kind
        words = [self.kind, f"smoothness {self._theta:g}"]
        if self.convexity:
            words.append(f"convexity {self.convexity:g}")
        if self.kind == "convex":
            clipped = (
                "clipped by record" if (self.clipping or "record") == "record" else "unclipped"
            )
            words.append(f"{self.losses or 'general'} losses {clipped}")
        return ", ".join(words)


ANY, FIXED_RESPONSES = Responses(), Responses(kind="fixed")


def responses_of(given: Any) -> Responses:
    """The responses that are given by one of the words or as they are."""
    if isinstance(given, Responses):
        return given
    if isinstance(given, str):
        _checks.one_of(given, field="responses", allowed=KINDS)
        return Responses(kind=given)  # type: ignore[arg-type]
    expected = f"one of {', '.join(KINDS)}, or Responses(...)"
    raise InputError("responses", expected=expected, got=_checks.describe(given))
