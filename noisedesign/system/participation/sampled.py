"""Schemes whose steps are drawn at random, in secret, for every record on its own. Accounts that
know no randomness take the patterns of :attr:`~Participation.fixed`, and hold for any law."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from noisedesign.base.checks import Array, InputError, describe, flag, positive_int, real
from noisedesign.system.participation.scheme import (
    FixedEpoch,
    Participation,
    Spaced,
    epochs_and_steps,
)

MOST_PATTERNS = 2**16  # patterns that are listed: a second of work, and a small Gram matrix

_RECORDS_OF_ONE_EPOCH = 'Take kind = "balls-in-bins", which noise is designed for.'


@dataclass(frozen=True, kw_only=True)
class BallsInBins(FixedEpoch):
    """Every record is put into one of b batches at random, once, and takes its steps j, j + b, ...

    The bin j of a record is uniform, independent of all others, and secret. Batches so are of
    different sizes; sums of gradients are divided by the expected one.

    Source: Choquette-Choo et al. (2024), "Near exact privacy amplification for matrix
    mechanisms" (arXiv 2410.06266); Chua et al. (2024), "Balls-and-bins sampling for DP-SGD" (arXiv
    2412.16802).

    Args:
        epochs: k, how often a record takes part.
        separation: b, the number of bins, and steps from one time to the next; 2 or more.

    Raises:
        InputError: ``epochs`` is not an integer >= 1, or ``separation`` not one >= 2.

    Examples:
        >>> import noisedesign as nd
        >>> nd.participation.BallsInBins(epochs=2, separation=3).bins
        [(0, 3), (1, 4), (2, 5)]
    """

    kind: ClassVar[str] = "balls-in-bins"
    random: ClassVar[bool] = True
    binned: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.separation == 1:
            expected = "2 bins or more"
            got = "1: every record takes part in every step, and nothing is drawn"
            remedy = 'Say kind = "every-step", or "fixed-epoch".'
            raise InputError("participation.separation", expected=expected, got=got, remedy=remedy)

    @property
    def bins(self) -> list[tuple[int, ...]]:
        return list(self.maximal_patterns())

    def __str__(self) -> str:
        return f"balls in bins of (k, b) = ({self.epochs}, {self.separation})"


@dataclass(frozen=True, kw_only=True)
class RandomAllocation(Spaced):
    """Every record takes part in t of the T steps, all choices equally likely.

    With t = 1 it is :class:`BallsInBins` of one epoch.

    Source: Feldman and Shenfeld (2025), "Privacy amplification by random allocation" (arXiv
    2502.08202).

    Args:
        horizon: T, the number of steps.
        participations: t, below T.

    Raises:
        InputError: ``horizon`` or ``participations`` is not an integer >= 1, or nothing is drawn.

    Examples:
        >>> import noisedesign as nd
        >>> nd.participation.RandomAllocation(horizon=3, participations=2).bins
        [(0, 1), (0, 2), (1, 2)]
    """

    horizon: int
    participations: int

    kind: ClassVar[str] = "random-allocation"
    random: ClassVar[bool] = True
    for_designs: ClassVar[bool] = False
    instead: ClassVar[str] = (
        'One participation in T steps is kind = "balls-in-bins" with epochs = 1, separation = T; '
        'for more, design for "balls-in-bins" with as many epochs.'
    )

    def __post_init__(self) -> None:
        positive_int(self.horizon, field="participation.horizon")
        positive_int(self.participations, field="participation.participations")
        if self.participations >= self.horizon:
            raise InputError(
                "participation.participations",
                expected=f"fewer than the {self.horizon} steps",
                got=f"{self.participations}: no step is left to chance",
                remedy='Say kind = "every-step" where every record takes part in all.',
            )

    @classmethod
    def from_records(cls, *, records: int, batch_size: int, epochs: int) -> Self:
        """The scheme of a run in which every record takes part ``epochs`` times, at any steps.

        It has epochs * ceil(records / batch_size) steps, of at most ``batch_size`` records each in
        expectation.

        Args:
            records: of one node.
            batch_size: the most records of a step, in expectation.
            epochs: t, how often every record takes part.

        Returns:
            The scheme.

        Raises:
            InputError: one of them is not an integer >= 1; batches that are no less than the data.

        Examples:
            >>> import noisedesign as nd
            >>> scheme = nd.participation.RandomAllocation
            >>> print(scheme.from_records(records=1000, batch_size=300, epochs=5))
            5 of 20 steps at random
        """
        t, steps = epochs_and_steps(records=records, batch_size=batch_size, epochs=epochs)
        return cls(horizon=t * steps, participations=t)

    @property
    def separation(self) -> int:
        """1, since steps may follow one another."""
        return 1

    @property
    def max_participations(self) -> int:
        """The t steps of a record."""
        return self.participations

    @property
    def bins(self) -> list[tuple[int, ...]]:
        if self.count() > MOST_PATTERNS:
            expected = f"at most {MOST_PATTERNS} patterns of one record, to list them"
            raise InputError("participation", expected=expected, got=f"more, of {self}")
        return list(itertools.combinations(range(self.horizon), self.participations))

    def until(self, steps: int) -> Participation:
        steps = self._first(steps)
        return self if steps == self.horizon else self.fixed.until(steps)

    def __str__(self) -> str:
        return f"{self.participations} of {self.horizon} steps at random"


@dataclass(frozen=True, kw_only=True)
class CyclicPoisson(FixedEpoch):
    """Records are in b fixed groups that take turns; each of a group's takes part by a coin.

    The group of a record, its number modulo b, needs no secret; every time it has its turn the
    record takes part with probability ``rate``. With b = 1 it is Poisson sampling.

    Source: Choquette-Choo et al. (2023), "(Amplified) banded matrix factorization" (arXiv
    2306.08153), Section 5.

    Args:
        epochs: k, turns of a group.
        separation: b, the number of groups.
        rate: the probability to take part in a turn, in (0, 1).

    Raises:
        InputError: ``epochs`` or ``separation`` is not an integer >= 1, or ``rate`` no such number.

    Examples:
        >>> import noisedesign as nd
        >>> print(nd.participation.CyclicPoisson(epochs=2, separation=3, rate=0.25))
        cyclic Poisson sampling of (k, b) = (2, 3) at rate 0.25
    """

    rate: float

    kind: ClassVar[str] = "cyclic-poisson"
    random: ClassVar[bool] = True
    for_designs: ClassVar[bool] = False
    instead: ClassVar[str] = _RECORDS_OF_ONE_EPOCH

    def __post_init__(self) -> None:
        super().__post_init__()
        remedy = 'Say kind = "fixed-epoch": every record takes part whenever its group does.'
        _set_rate(self, one=remedy)

    @classmethod
    def from_records(
        cls, *, records: int, batch_size: int, epochs: int, separation: int = 1
    ) -> Self:
        """The scheme of a run of ``batch_size`` records a step in expectation.

        It has epochs * ceil(records / batch_size) steps; ``rate`` is batch_size * separation /
        records. A record takes part ``epochs`` times in expectation, or a little more often where
        ``batch_size`` does not divide ``records``.

        Args:
            records: of one node.
            batch_size: records of a step, in expectation.
            epochs: passes over the data.
            separation: b, the number of groups; 1 is Poisson sampling. It divides the steps.

        Returns:
            The scheme.

        Raises:
            InputError: one of them is not an integer >= 1; steps that b does not divide; batches
                that are no less than a group.

        Examples:
            >>> import noisedesign as nd
            >>> scheme = nd.participation.CyclicPoisson
            >>> print(scheme.from_records(records=1000, batch_size=250, epochs=5, separation=2))
            cyclic Poisson sampling of (k, b) = (10, 2) at rate 0.5
        """
        said = _turns_and_rate(records, batch_size, epochs, separation)
        return cls(separation=separation, **said)

    @property
    def period(self) -> None:
        return None  # no two batches need be alike

    def __str__(self) -> str:
        return (
            f"cyclic Poisson sampling of (k, b) = ({self.epochs}, {self.separation}) at rate "
            f"{self.rate:g}"
        )


@dataclass(frozen=True, kw_only=True)
class TruncatedPoisson(CyclicPoisson):
    """Cyclic Poisson sampling whose batches have a largest size.

    Where more records of a group are drawn, ``batch_size_limit`` of them take part, all choices
    equally likely, so that an account needs their number.

    Source: Ganesh (2024), "Tight group-level DP guarantees for DP-SGD with sampling via mixture of
    Gaussians mechanisms"; Chua et al. (2024), "Scalable DP-SGD" (arXiv 2411.04205).

    Args:
        epochs: k, turns of a group.
        separation: b, the number of groups.
        rate: the probability to be drawn in a turn, in (0, 1).
        batch_size_limit: the most records of a batch.
        group_size: records of a group, the largest of them.

    Raises:
        InputError: one of them is not an integer >= 1, or ``rate`` no such number; a limit that
            is no limit.

    Examples:
        >>> import noisedesign as nd
        >>> sizes = {"batch_size_limit": 60, "group_size": 100}
        >>> print(nd.participation.TruncatedPoisson(epochs=2, separation=3, rate=0.5, **sizes))
        cyclic Poisson sampling of (k, b) = (2, 3) at rate 0.5, at most 60 of 100 records
    """

    batch_size_limit: int
    group_size: int

    kind: ClassVar[str] = "truncated-poisson"

    def __post_init__(self) -> None:
        super().__post_init__()
        limit = positive_int(self.batch_size_limit, field="participation.batch_size_limit")
        size = positive_int(self.group_size, field="participation.group_size")
        if limit >= size:
            expected = f"fewer than the {size} records of a group"
            remedy = 'Without a limit it is kind = "cyclic-poisson".'
            raise InputError(
                "participation.batch_size_limit", expected=expected, got=str(limit), remedy=remedy
            )

    @classmethod
    def from_records(  # type: ignore[override] # a limit has no default
        cls,
        *,
        records: int,
        batch_size: int,
        epochs: int,
        batch_size_limit: int,
        separation: int = 1,
    ) -> Self:
        """The scheme of a run of ``batch_size`` records a step in expectation, before it is cut.

        Steps and ``rate`` are those of :meth:`CyclicPoisson.from_records`, and a group has
        ceil(records / separation) records.

        Args:
            records: of one node.
            batch_size: records that are drawn for a step, in expectation.
            epochs: passes over the data.
            batch_size_limit: the most records of a batch.
            separation: b, the number of groups; 1 is Poisson sampling. It divides the steps.

        Returns:
            The scheme.

        Raises:
            InputError: as of :meth:`CyclicPoisson.from_records`; a limit that is no limit.

        Examples:
            >>> import noisedesign as nd
            >>> sizes = {"records": 1000, "batch_size": 250, "batch_size_limit": 300}
            >>> print(nd.participation.TruncatedPoisson.from_records(epochs=5, **sizes))
            cyclic Poisson sampling of (k, b) = (20, 1) at rate 0.25, at most 300 of 1000 records
        """
        said = _turns_and_rate(records, batch_size, epochs, separation)
        said["group_size"] = -(-records // separation)
        return cls(separation=separation, batch_size_limit=batch_size_limit, **said)

    def __str__(self) -> str:
        return f"{super().__str__()}, at most {self.batch_size_limit} of {self.group_size} records"


@dataclass(frozen=True, kw_only=True)
class BMinSepSampling(Spaced):
    """A record takes part by a coin in every step, but for the b - 1 steps after it took part.

    A warm start draws who took part before step 0 from the stationary law, so that all batches
    are of the same expected size: a record is held back for r more steps, r = 1, ..., b - 1, with
    probability p / (1 + (b - 1) p) each. Warm, with rate 1, it is :class:`BallsInBins`.

    Source: Dong et al. (2026), "b-min-sep" sampling (arXiv 2602.09338), as in ``jax_privacy``.

    Args:
        horizon: T, the number of steps.
        separation: b: steps s < t of one record have t - s >= b.
        rate: p, the probability to take part in a step that is not held back, in (0, 1].
        warm_start: whether batches are of the same expected size from the start.

    Raises:
        InputError: ``horizon`` or ``separation`` is not an integer >= 1, ``rate`` no such number,
            or nothing is drawn.

    Examples:
        >>> import noisedesign as nd
        >>> scheme = nd.participation.BMinSepSampling(horizon=2, separation=2, rate=0.5)
        >>> scheme.held_back.round(4).tolist()
        [0.6667, 0.3333]
    """

    horizon: int
    separation: int
    rate: float
    warm_start: bool = True

    kind: ClassVar[str] = "b-min-sep"
    random: ClassVar[bool] = True
    for_designs: ClassVar[bool] = False
    instead: ClassVar[str] = _RECORDS_OF_ONE_EPOCH

    def __post_init__(self) -> None:
        positive_int(self.horizon, field="participation.horizon")
        positive_int(self.separation, field="participation.separation")
        flag(self.warm_start, field="participation.warm_start")
        remedy = 'Say kind = "fixed-epoch", or warm_start = true.'
        drawn = self.warm_start and self.separation > 1
        _set_rate(self, one="" if drawn else remedy)

    @classmethod
    def from_records(
        cls, *, records: int, batch_size: int, epochs: int, separation: int, warm_start: bool = True
    ) -> Self:
        """The scheme of a run of ``batch_size`` records a step in expectation.

        It has epochs * ceil(records / batch_size) steps. Of all records the share q = batch_size /
        records takes part in a step, by the stationary law: ``rate`` is q / (1 - (b - 1) q).

        Args:
            records: of one node.
            batch_size: records of a step, in expectation.
            epochs: passes over the data.
            separation: b, at most records / batch_size.
            warm_start: whether batches are of that size from the start; the first are larger
                without.

        Returns:
            The scheme.

        Raises:
            InputError: one of them is not an integer >= 1; batches for which so few records are
                not held back; nothing is drawn.

        Examples:
            >>> import noisedesign as nd
            >>> sizes = {"records": 1000, "batch_size": 250, "epochs": 5}
            >>> scheme = nd.participation.BMinSepSampling.from_records(separation=3, **sizes)
            >>> print(scheme)
            b-min-sep sampling at rate 0.5, 3 steps apart, of 20 steps
        """
        passes, steps = epochs_and_steps(records=records, batch_size=batch_size, epochs=epochs)
        field = "separation"
        ready = records - (positive_int(separation, field=field) - 1) * batch_size
        if ready < batch_size:
            expected = f"at most records / batch_size = {records / batch_size:g}"
            raise InputError(field, expected=expected, got=str(separation))
        rate = batch_size / ready
        how: dict[str, Any] = {"rate": rate, "warm_start": warm_start}
        return cls(horizon=passes * steps, separation=separation, **how)

    @property
    def max_participations(self) -> int:
        """ceil(T / b), as there is no room for more."""
        return -(-self.horizon // self.separation)

    @property
    def held_back(self) -> Array:
        """Probability that a record is held back for r more steps at the start, shape (b,)."""
        b, p = self.separation, self.rate if self.warm_start else 0.0
        return np.array([1.0, *[p] * (b - 1)]) / (1 + (b - 1) * p)

    @classmethod
    def keys(cls) -> dict[str, Any]:
        return super().keys() | {"warm_start": (bool, True)}

    def __str__(self) -> str:
        start = "" if self.warm_start else ", from a cold start"
        return (
            f"b-min-sep sampling at rate {self.rate:g}, {self.separation} steps apart, of "
            f"{self.horizon} steps{start}"
        )


def _turns_and_rate(records: int, batch_size: int, epochs: int, separation: int) -> dict[str, Any]:
    """Turns of each of b groups, and the rate at which a step has so many records in mean."""
    passes, steps = epochs_and_steps(records=records, batch_size=batch_size, epochs=epochs)
    field = "separation"
    turns, rest = divmod(passes * steps, positive_int(separation, field=field))
    if rest:
        expected = f"groups whose number divides the {passes * steps} steps"
        raise InputError(field, expected=expected, got=str(separation))
    if separation * batch_size > records:
        expected = f"groups of batch_size = {batch_size} records or more, of {records}"
        raise InputError(field, expected=expected, got=f"{separation} groups")
    return {"epochs": turns, "rate": batch_size * separation / records}


def _set_rate(scheme: CyclicPoisson | BMinSepSampling, *, one: str) -> None:
    """The rate, as a number in (0, 1]; at 1 with a remedy where nothing would be drawn then."""
    field = "participation.rate"
    rate = real(scheme.rate, field=field)
    if not 0 < rate <= 1:
        raise InputError(field, expected="a probability in (0, 1]", got=describe(scheme.rate))
    if rate == 1 and one:
        got = "1: nothing is left to chance"
        raise InputError(field, expected="a probability below 1", got=got, remedy=one)
    object.__setattr__(scheme, "rate", rate)
