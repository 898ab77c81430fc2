"""The steps at which a record may take part, by the participation that a design is for."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError

RULE = "the Rule of a design, as plan.claim.rule is"
Number = TypeVar("Number", np.float64, np.int64)
# Kinds of participation whose steps a node draws, in secret.
RANDOM = ("balls-in-bins", "random-allocation", "cyclic-poisson", "truncated-poisson", "b-min-sep")


@dataclass(frozen=True, kw_only=True)
class Randomness:
    """The law by which the steps of a record are drawn, within their :class:`Rule`.

    Args:
        kind: of the participation, one of :data:`RANDOM`.
        rate: the probability to be drawn for a step, where it is one by one.
        warm_start: whether ``b-min-sep`` starts from its stationary law.
        batch_size_limit: the most records of a batch, where there is such a limit.
        group_size: the records that a batch is drawn from, where an account needs their number.

    Raises:
        InputError: other values than these.

    Examples:
        >>> import noisedesign as nd
        >>> nd.participation.BallsInBins(epochs=2, separation=3).rule.random.kind
        'balls-in-bins'
    """

    kind: str
    rate: float | None = None
    warm_start: bool | None = None
    batch_size_limit: int | None = None
    group_size: int | None = None

    def __post_init__(self) -> None:
        _checks.one_of(self.kind, field="rule.random.kind", allowed=RANDOM)
        if self.rate is not None and not 0 < _checks.real(self.rate, field="rule.random.rate") <= 1:
            expected, got = "a probability in (0, 1]", f"{self.rate:g}"
            raise InputError("rule.random.rate", expected=expected, got=got)
        if self.warm_start is not None:
            _checks.flag(self.warm_start, field="rule.random.warm_start")
        for key in ("batch_size_limit", "group_size"):
            if getattr(self, key) is not None:
                _checks.positive_int(getattr(self, key), field=f"rule.random.{key}")


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The sets of zero-based steps at which one record may take part.

    Args:
        most: at most so often.
        min_sep: any two of them at least so many steps apart.
        residue: all of them equal modulo this; None where they need not be.
        patterns: all of them in one of these sets; None where nothing is listed.
        random: how they are drawn in secret; None where privacy holds for any choice of them.

    Raises:
        InputError: other values than these.

    Examples:
        >>> from noisedesign.noise import Rule
        >>> rule = Rule(most=2, min_sep=3)
        >>> rule.broken((0, 3))
        ''
        >>> rule.broken((0, 2))
        'in steps 0, 2, less than 3 apart'
    """

    most: int
    min_sep: int = 1
    residue: int | None = None
    patterns: tuple[tuple[int, ...], ...] | None = None
    random: Randomness | None = None

    def __post_init__(self) -> None:
        _checks.positive_int(self.most, field="rule.most")
        _checks.positive_int(self.min_sep, field="rule.min_sep")
        if self.residue is not None:
            _checks.positive_int(self.residue, field="rule.residue")
        if self.patterns is not None:
            object.__setattr__(self, "patterns", _checked_patterns(self.patterns))
        if self.random is not None:
            expected = "a Randomness, or None"
            _checks.instance(self.random, Randomness, field="rule.random", expected=expected)

    def to_json(self) -> dict[str, Any]:
        """Its numbers.

        Returns:
            JSON values; without ``random`` where nothing is drawn, so that digests of older
            designs, and the keys of their noise, stay.
        """
        found = asdict(self)
        if self.random is None:
            del found["random"]
        return found

    @classmethod
    def of_json(cls, said: Mapping[str, Any]) -> Rule:
        """Back from :meth:`to_json`.

        Args:
            said: the JSON object.

        Returns:
            The rule.

        Raises:
            KeyError: it is none, as a TypeError or ValueError tells, too.
        """
        stated = {name: said[name] for name in ("most", "min_sep", "residue", "patterns")}
        random = said.get("random")
        return cls(**{**said, **stated, "random": random and Randomness(**random)})

    def broken(self, steps: tuple[int, ...]) -> str:
        """The part of the rule that the steps of one record break, in words.

        Args:
            steps: zero-based, ascending; the last is the new one.

        Returns:
            Words; nothing where the steps are allowed.
        """
        if len(set(steps)) < len(steps):
            return f"twice in step {steps[-1]}"
        if len(steps) > self.most:
            return f"{len(steps)} times, where the design is for {self.most}"
        if any(b - a < self.min_sep for a, b in itertools.pairwise(steps)):
            return f"in steps {_listed(steps)}, less than {self.min_sep} apart"
        if self.residue is not None and len({s % self.residue for s in steps}) > 1:
            return f"in steps {_listed(steps)}, not a multiple of {self.residue} apart"
        if self.patterns is not None and not any(set(steps) <= set(p) for p in self.patterns):
            return f"in steps {_listed(steps)}, which are in no pattern of the design"
        return ""


def heaviest_sums(weights: NDArray[Number], *, separation: int, counts: int) -> NDArray[Number]:
    """Return the largest sums of at most 0, 1, ..., ``counts`` nonnegative weights, b apart, by
    best(i, t) = max(best(i, t - 1), w_t + best(i - 1, t - b))."""
    sums = np.zeros((counts + 1, *weights.shape[:-1]), dtype=weights.dtype)
    prefix = np.zeros_like(weights)
    for i in range(1, counts + 1):
        reached = weights.copy()
        reached[..., separation:] += prefix[..., :-separation]
        prefix = np.maximum.accumulate(reached, axis=-1)
        sums[i] = prefix[..., -1] if weights.shape[-1] else 0
    return sums


def _checked_patterns(patterns: Any) -> tuple[tuple[int, ...], ...]:
    field, expected = "rule.patterns", "lists of steps"
    sets = _checks.listed(patterns, field=field, expected=expected)
    return tuple(
        tuple(
            _checks.positive_int(step, field=field, minimum=0)
            for step in _checks.listed(steps, field=field, expected=expected)
        )
        for steps in sets
    )


def _listed(steps: tuple[int, ...]) -> str:
    return ", ".join(map(str, steps)) if len(steps) < 6 else f"{steps[0]}, ..., {steps[-1]}"
