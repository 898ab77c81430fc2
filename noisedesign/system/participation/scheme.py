"""Schemes of participation whose steps an adversary chooses: listed, evenly spaced, or far
apart."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, get_type_hints

import numpy as np
from numpy.typing import NDArray

from noisedesign.base.checks import Array, InputError, describe, listed, positive_int
from noisedesign.noise.rules import Randomness, Rule, heaviest_sums

Steps = NDArray[np.intp]


MOST_LISTED = 1_000_000
"""Patterns of a scheme that are listed one by one: more take minutes, and gigabytes."""


class Cover(NamedTuple):
    """The diagonals x that squared sensitivity 1 allows an X that is diagonal on every pattern: x
    <= generators @ z with z >= 0 and, in every budget, sum of cost * z <= 1."""

    generators: Array  # (T, m), zeros and ones
    cost: Array  # (m,), positive
    budget: Steps  # (m,), ascending: the budget, from 0, that each generator draws on


class Participation:
    """A scheme, by its horizon T and maximal patterns; subclasses override what they know."""

    kind: ClassVar[str]
    """The name in files."""
    disjoint: ClassVar[bool] = False
    """Whether no two patterns share a step, as in :class:`FixedEpoch`."""
    spaced: ClassVar[bool] = False
    """Whether all steps at least ``stride`` apart, up to ``largest_size``, are a pattern."""
    for_designs: ClassVar[bool] = True
    """Whether noise is designed for it; otherwise it is for accounts only."""
    instead: ClassVar[str] = ""
    """A remedy: the scheme to design for instead, where noise is not designed for this one."""
    random: ClassVar[bool] = False
    """Whether nodes draw the steps of a record, in secret; otherwise an adversary chooses them."""
    binned: ClassVar[bool] = False
    """Whether a record takes one of the few, equally likely patterns of :attr:`bins`."""

    if TYPE_CHECKING:  # at run time it would be the default of the field

        @property
        def horizon(self) -> int:
            """Number of steps T."""

    def maximal_patterns(self) -> Iterator[tuple[int, ...]]:
        """The patterns that no further step extends, zero-based steps in ascending order.

        Returns:
            An iterator, since there may be very many.
        """
        raise NotImplementedError

    def _every(self) -> Iterator[tuple[int, ...]]:
        for number, pattern in enumerate(self.maximal_patterns()):
            if number == MOST_LISTED:
                expected = f"at most {MOST_LISTED} patterns, or a scheme that needs no list of them"
                raise InputError("participation", expected=expected, got=str(self))
            yield pattern

    @property
    def patterns(self) -> Sequence[tuple[int, ...]] | Steps:
        """All of :meth:`maximal_patterns`; InputError where there are more than a million."""
        return list(self._every())

    @property
    def bins(self) -> list[tuple[int, ...]]:
        """The patterns of one record where they are drawn, each as likely as any other.

        Raises:
            InputError: nothing is drawn; patterns are not equally likely, or too many to list.
        """
        expected = "random participation in one of some equally likely patterns"
        raise InputError("participation", expected=expected, got=str(self))

    @property
    def fixed(self) -> Participation:
        """The scheme in which an adversary chooses what is drawn here; itself if nothing is."""
        return self

    def count(self) -> int:
        """Number of maximal patterns.

        Returns:
            The number, exact.
        """
        return sum(1 for _ in self._every())

    @property
    def largest_size(self) -> int:
        """Number of steps of the largest pattern, the most of one record."""
        return max(map(len, self._every()))

    @property
    def stride(self) -> int:
        """Least distance of two steps of a pattern; T where all patterns are single steps."""
        gaps = (min(np.diff(p)) for p in self._every() if len(p) > 1)
        return int(min(gaps, default=self.horizon))

    @property
    def period(self) -> int | None:
        """Steps after which the batches come round again; None where they need not."""
        return None

    @property
    def taking_part(self) -> NDArray[np.bool_]:
        """Whether each step belongs to some pattern, shape (T,)."""
        found = np.zeros(self.horizon, dtype=bool)
        for pattern in self._every():
            found[list(pattern)] = True
        return found

    @property
    def even_size(self) -> int:
        """Size p of patterns that contain every step equally often; 0 where there are none."""
        return int(self.taking_part.all())

    def heaviest(self, weights: Array) -> float:
        """Largest sum of weights over a pattern.

        Args:
            weights: of every step, nonnegative, shape (T,).

        Returns:
            The sum.
        """
        return max(float(weights[list(p)].sum()) for p in self._every())

    def longest(self, most: int) -> Steps:
        """Patterns of the largest size.

        Args:
            most: number of patterns that is enough.

        Returns:
            Zero-based steps, shape (p, k), of all such patterns or of ``most`` at the least.
        """
        size = self.largest_size
        found = (pattern for pattern in self._every() if len(pattern) == size)
        return np.array(list(itertools.islice(found, most)))

    def allows(self, steps: Steps) -> bool:
        """Whether every row is a pattern or part of one, ascending.

        Args:
            steps: zero-based, shape (p, k).

        Returns:
            True or False.
        """
        maximal = [set(pattern) for pattern in self._every()]
        return bool((np.diff(steps, axis=1) > 0).all()) and all(
            any(pattern.issuperset(row) for pattern in maximal) for row in steps.tolist()
        )

    def until(self, steps: int) -> Participation:
        """The scheme of its first steps, with the part of every pattern that lies in them.

        Args:
            steps: 1 to T.

        Returns:
            A scheme with that horizon.

        Raises:
            InputError: no integer, or outside of these.
        """
        steps = self._first(steps)
        cut = (tuple(t for t in pattern if t < steps) for pattern in self._every())
        return Patterns(horizon=steps, steps=tuple(sorted(filter(None, set(cut)))))

    def _first(self, steps: Any) -> int:
        first: int = positive_int(steps, field="steps")
        if first > self.horizon:
            expected = f"at most {self.horizon}, the horizon"
            raise InputError("steps", expected=expected, got=f"{first}")
        return first

    @property
    def rule(self) -> Rule:
        """The rule that a trainer holds every record to."""
        return Rule(most=self.largest_size, min_sep=1, patterns=tuple(self._every()))

    def _randomness(self) -> Randomness | None:
        if not self.random:
            return None
        keys = ("rate", "warm_start", "batch_size_limit", "group_size")
        return Randomness(kind=self.kind, **{k: getattr(self, k) for k in keys if hasattr(self, k)})

    def cover(self) -> Cover | None:
        """The diagonals that a banded X may have.

        Returns:
            The cover; None where no such description is known.
        """
        return None

    @property
    def told_horizon(self) -> tuple[str, str]:
        """The keys that T comes from, and its value."""
        return "horizon", str(self.horizon)

    @classmethod
    def keys(cls) -> dict[str, Any]:
        """Keys of its tables in files.

        Returns:
            Types of the values by key.
        """
        types = get_type_hints(cls)
        return {field.name: types[field.name] for field in dataclasses.fields(cls)}  # type: ignore[arg-type]

    def entry(self) -> dict[str, Any]:
        """Its numbers as files hold them.

        Returns:
            Number by key.
        """
        return {key: np.asarray(getattr(self, key)).item() for key in self.keys()}

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Self:
        """The scheme of an :meth:`entry`.

        Args:
            entry: number by key.

        Returns:
            The scheme.
        """
        return cls(**entry)


def epochs_and_steps(*, records: int, batch_size: int, epochs: int) -> tuple[int, int]:
    """Epochs, and the steps of one of them, ceil(records / batch_size)."""
    records = positive_int(records, field="records")
    batch_size = positive_int(batch_size, field="batch_size")
    if batch_size > records:
        expected = f"at most records = {records}"
        raise InputError("batch_size", expected=expected, got=str(batch_size))
    return positive_int(epochs, field="epochs"), -(-records // batch_size)


@dataclass(frozen=True, kw_only=True)
class Patterns(Participation):
    """Any list of patterns, for accounts; noise is not designed for it.

    It has no ``from_records``: how many records there are says nothing of the steps of one.

    Args:
        horizon: T, the number of steps.
        steps: one tuple of zero-based steps for each pattern. Patterns may differ in size and
            overlap; each is kept in ascending order.

    Raises:
        InputError: ``horizon`` is not an integer >= 1; no pattern, or one that is empty, repeats
            a step, or has a step that is not an integer in [0, horizon).

    Examples:
        >>> import noisedesign as nd
        >>> nd.participation.Patterns(horizon=4, steps=[(2, 0), (1,)]).patterns
        [(0, 2), (1,)]
    """

    horizon: int
    steps: tuple[tuple[int, ...], ...]

    kind: ClassVar[str] = "patterns"
    for_designs: ClassVar[bool] = False

    def __post_init__(self) -> None:
        field = "participation.patterns"
        positive_int(self.horizon, field="participation.horizon")
        patterns = listed(
            self.steps, field=field, expected="a list of patterns, each a list of steps"
        )
        if not patterns:
            raise InputError(field, expected="at least one pattern", got="an empty list")
        checked = tuple(self._checked(pattern, number=j) for j, pattern in enumerate(patterns))
        object.__setattr__(self, "steps", checked)

    def _checked(self, pattern: object, *, number: int) -> tuple[int, ...]:
        field = "participation.patterns"

        def wrong(expected: str, got: str) -> InputError:
            return InputError(field, expected=expected, got=f"{got} in pattern {number}")

        steps: list[int] = []
        for step in listed(
            pattern, field=field, expected=f"pattern {number} to be a list of steps"
        ):
            if not isinstance(step, (int, np.integer)) or isinstance(step, (bool, np.bool_)):
                raise wrong("integer steps", describe(step))
            if not 0 <= step < self.horizon:
                expected = f"steps 0 to {self.horizon - 1} (horizon {self.horizon}, zero-based)"
                raise wrong(expected, f"step {step}")
            steps.append(int(step))
        if not steps:
            raise wrong("at least one step in every pattern", "none")
        steps.sort()
        for earlier, later in itertools.pairwise(steps):
            if earlier == later:
                raise wrong("every step once in a pattern", f"step {later} twice")
        return tuple(steps)

    def maximal_patterns(self) -> Iterator[tuple[int, ...]]:
        return iter(self.steps)

    @classmethod
    def keys(cls) -> dict[str, Any]:
        return {"horizon": int, "patterns": list[list[int]]}

    def entry(self) -> dict[str, Any]:
        return {"horizon": int(self.horizon), "patterns": [list(steps) for steps in self.steps]}

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Self:
        return cls(horizon=entry["horizon"], steps=tuple(map(tuple, entry["patterns"])))

    def __str__(self) -> str:
        number = len(self.steps)
        return f"{number} pattern{'s' if number > 1 else ''} in {self.horizon} steps"


@dataclass(frozen=True, kw_only=True)
class FixedEpoch(Participation):
    """(k, b) participation: a record takes part in steps :math:`j, j + b, ..., j + (k - 1) b`.

    The b patterns are the residue classes of the T = k b steps modulo b. One epoch is single
    participation, which is also how the nodes of a spatial design take part.

    Source: Choquette-Choo et al. (2023), "(k, b)-participation".

    Args:
        epochs: k, how often a record takes part.
        separation: b, steps from one time to the next.

    Raises:
        InputError: ``epochs`` or ``separation`` is not an integer >= 1.

    Examples:
        >>> import noisedesign as nd
        >>> nd.participation.FixedEpoch(epochs=2, separation=3).patterns.tolist()
        [[0, 3], [1, 4], [2, 5]]
    """

    epochs: int
    separation: int

    kind: ClassVar[str] = "fixed-epoch"
    disjoint: ClassVar[bool] = True

    def __post_init__(self) -> None:
        positive_int(self.epochs, field="participation.epochs")
        positive_int(self.separation, field="participation.separation")

    @classmethod
    def from_records(cls, *, records: int, batch_size: int, epochs: int) -> Self:
        """The scheme of a run in which every record takes part once an epoch.

        An epoch has b = ceil(records / batch_size) steps. Batches in a fixed order are the same
        in every epoch, the last one smaller where ``batch_size`` does not divide ``records``; the
        bins of :class:`BallsInBins` hold records / b records in expectation.

        Args:
            records: of one node.
            batch_size: the most records of a step.
            epochs: k, how often every record takes part.

        Returns:
            The (k, b) of the run.

        Raises:
            InputError: one of them is not an integer >= 1; batches larger than the data.

        Examples:
            >>> import noisedesign as nd
            >>> scheme = nd.participation.FixedEpoch
            >>> print(scheme.from_records(records=1000, batch_size=300, epochs=5))
            (k, b) = (5, 4)
        """
        k, b = epochs_and_steps(records=records, batch_size=batch_size, epochs=epochs)
        return cls(epochs=k, separation=b)

    @property
    def horizon(self) -> int:
        """Number of steps T = epochs * separation."""
        return self.epochs * self.separation

    @property
    def largest_size(self) -> int:
        return self.epochs

    @property
    def stride(self) -> int:
        return self.separation

    @property
    def period(self) -> int | None:
        return self.separation if self.epochs > 1 else None

    @property
    def even_size(self) -> int:
        return self.epochs  # every step is in one pattern

    @property
    def taking_part(self) -> NDArray[np.bool_]:
        return np.ones(self.horizon, dtype=bool)

    @property
    def patterns(self) -> Steps:
        """Steps of each pattern, shape (separation, epochs), zero-based."""
        return np.arange(self.horizon).reshape(self.epochs, self.separation).T

    def maximal_patterns(self) -> Iterator[tuple[int, ...]]:
        return map(tuple, self.patterns.tolist())

    def count(self) -> int:
        return self.separation

    def longest(self, most: int) -> Steps:
        return self.patterns

    def until(self, steps: int) -> Participation:
        steps = self._first(steps)
        epochs, rest = divmod(steps, self.separation)
        if epochs == 0:
            return single(steps)
        return super().until(steps) if rest else dataclasses.replace(self, epochs=epochs)

    @property
    def fixed(self) -> FixedEpoch:
        return FixedEpoch(epochs=self.epochs, separation=self.separation)

    @property
    def rule(self) -> Rule:
        b, drawn = self.separation, self._randomness()
        return Rule(most=self.epochs, min_sep=b, residue=b, random=drawn)

    def cover(self) -> Cover:
        # Every step on its own, one budget for each residue class, which follow one another.
        horizon, order = self.horizon, self.patterns.ravel()
        generators = np.zeros((horizon, horizon))
        generators[order, np.arange(horizon)] = 1.0
        return Cover(generators, np.ones(horizon), order % self.separation)

    @property
    def told_horizon(self) -> tuple[str, str]:
        return "epochs * separation", f"{self.epochs} * {self.separation} = {self.horizon}"

    def __str__(self) -> str:
        return f"(k, b) = ({self.epochs}, {self.separation})"


def require_fixed_epoch(
    participation: Participation,
    *,
    field: str = "participation",
    expected: str = "(k, b) participation (epochs, separation)",
    got: str = "",
    remedy: str = "",
) -> FixedEpoch:
    """The scheme, once it is (k, b) participation."""
    if not isinstance(participation, FixedEpoch):
        raise InputError(field, expected=expected, got=got or str(participation), remedy=remedy)
    return participation


class Spaced(Participation):
    """Schemes of at most ``max_participations`` steps, any two ``separation`` or more apart."""

    spaced: ClassVar[bool] = True

    if TYPE_CHECKING:  # at run time they would be the defaults of fields

        @property
        def separation(self) -> int:
            """b: steps s < t of one pattern have t - s >= b."""

        @property
        def max_participations(self) -> int:
            """k, how often a record takes part at most."""

    @property
    def largest_size(self) -> int:
        return min(self.max_participations, -(-self.horizon // self.separation))

    @property
    def stride(self) -> int:
        return self.separation

    @property
    def taking_part(self) -> NDArray[np.bool_]:
        return np.ones(self.horizon, dtype=bool)

    @property
    def even_size(self) -> int:
        # The T patterns floor((r + i T) / p), i < p, r < T, contain each step p times.
        return min(self.max_participations, max(1, self.horizon // self.separation))

    def count(self) -> int:
        # Patterns of k steps: T - 1 - (k - 1) b spare steps before, between and after them. Shorter
        # ones are maximal where no step fits in: what precedes the first and follows the last is
        # below b and gaps are below 2b, so each of the m + 1 spares is below b, counted by
        # inclusion and exclusion.
        b, total = self.separation, 0
        for size in range(1, self.largest_size + 1):
            spare = self.horizon - 1 - (size - 1) * b
            if size == self.max_participations:
                total += math.comb(spare + size, size)
                continue
            total += sum(
                (-1) ** j * math.comb(size + 1, j) * math.comb(spare - j * b + size, size)
                for j in range(min(size + 1, spare // b) + 1)
            )
        return total

    def maximal_patterns(self) -> Iterator[tuple[int, ...]]:
        b, k, last = self.separation, self.max_participations, self.horizon - 1
        steps: list[int] = []
        # For every prefix: what may follow, and whether a step still fits between its steps. Such
        # a pattern is maximal only if it reaches k, so room for the missing ones is kept.
        prefixes = [(iter(range(max(last - (k - 1) * b, min(b - 1, last)) + 1)), False)]
        while prefixes:
            following, roomy = prefixes[-1]
            t = next(following, None)
            if t is None:
                prefixes.pop()
                del steps[-1:]
                continue
            roomy = roomy or t >= (steps[-1] + 2 * b if steps else b)
            steps.append(t)
            if len(steps) == k or t + b > last:
                yield tuple(steps)
                steps.pop()
                continue
            in_time = last - (k - len(steps) - 1) * b
            end = in_time if roomy else max(in_time, min(t + 2 * b - 1, last))
            prefixes.append((iter(range(t + b, end + 1)), roomy))

    def heaviest(self, weights: Array) -> float:
        sums = heaviest_sums(weights, separation=self.separation, counts=self.largest_size)
        return float(sums[-1])

    def longest(self, most: int) -> Steps:
        found = super().longest(most + 1)
        if len(found) <= most:
            return found
        # Where there are more, the densest pattern of every start.
        span = np.arange(self.largest_size) * self.separation
        return np.asarray(np.arange(self.horizon - span[-1])[:, None] + span)

    @property
    def fixed(self) -> MinSeparation:
        return MinSeparation(
            horizon=self.horizon,
            separation=self.separation,
            max_participations=self.max_participations,
        )

    @property
    def rule(self) -> Rule:
        most, drawn = self.max_participations, self._randomness()
        return Rule(most=most, min_sep=self.separation, random=drawn)

    def until(self, steps: int) -> Participation:
        cut: Any = self  # every subclass is a dataclass
        found: Participation = dataclasses.replace(cut, horizon=self._first(steps))
        return found

    def allows(self, steps: Steps) -> bool:
        apart = (np.diff(steps, axis=1) >= self.separation).all()
        return bool(apart) and steps.shape[1] <= self.largest_size

    def cover(self) -> Cover:
        # Every window of b steps at cost 1 and, where k is a restriction, all steps at cost k.
        # Patterns are the 0-1 points of "at most one step in a window, at most k in all". That
        # matrix has consecutive ones in every row and hence is totally unimodular, so the heaviest
        # pattern under x costs as much as the cheapest cover of x by windows.
        horizon, b = self.horizon, self.separation
        first = np.arange(max(horizon - b, 0) + 1)
        steps = np.arange(horizon)[:, None]
        generators = ((steps >= first) & (steps < first + b)).astype(np.float64)
        cost = np.ones(len(first))
        if self.max_participations < -(-horizon // b):
            generators = np.hstack([generators, np.ones((horizon, 1))])
            cost = np.append(cost, float(self.max_participations))
        return Cover(generators, cost, np.zeros(len(cost), dtype=np.intp))


@dataclass(frozen=True, kw_only=True)
class MinSeparation(Spaced):
    """Min-separation participation: at most k steps, any two of them at least b apart.

    With b = 1 and k = T every set of steps is a pattern; with k = 1 it is single participation.

    Source: Choquette-Choo et al. (2023), "(Amplified) banded matrix factorization", b-min-sep.

    Args:
        horizon: T, the number of steps.
        separation: b: steps s < t of one pattern have t - s >= b.
        max_participations: k, how often a record takes part at most.

    Raises:
        InputError: ``horizon``, ``separation`` or ``max_participations`` is not an integer >= 1.

    Examples:
        >>> import noisedesign as nd
        >>> scheme = nd.participation.MinSeparation(horizon=4, separation=2, max_participations=2)
        >>> scheme.patterns
        [(0, 2), (0, 3), (1, 3)]
    """

    horizon: int
    separation: int
    max_participations: int

    kind: ClassVar[str] = "min-separation"

    def __post_init__(self) -> None:
        positive_int(self.horizon, field="participation.horizon")
        positive_int(self.separation, field="participation.separation")
        positive_int(self.max_participations, field="participation.max_participations")

    @classmethod
    def from_records(cls, *, records: int, batch_size: int, epochs: int) -> Self:
        """The scheme of a run whose batches come in the same order in every epoch, or later.

        An epoch has b = ceil(records / batch_size) steps, and a record waits for as many before it
        takes part again. Records that are shuffled anew in every epoch do not: there
        ``separation`` is 1.

        Args:
            records: of one node.
            batch_size: the most records of a step.
            epochs: k, how often every record takes part at most.

        Returns:
            At most k steps of k b, any two of them at least b apart.

        Raises:
            InputError: one of them is not an integer >= 1; batches larger than the data.

        Examples:
            >>> import noisedesign as nd
            >>> scheme = nd.participation.MinSeparation
            >>> print(scheme.from_records(records=1000, batch_size=300, epochs=5))
            at most 5 participations, at least 4 steps apart, in 20 steps
        """
        k, b = epochs_and_steps(records=records, batch_size=batch_size, epochs=epochs)
        return cls(horizon=k * b, separation=b, max_participations=k)

    def __str__(self) -> str:
        return (
            f"at most {self.max_participations} participations, at least {self.separation} steps "
            f"apart, in {self.horizon} steps"
        )


def single(horizon: int) -> FixedEpoch:
    """Single participation: a record takes part in one of the steps (or is at one of the nodes).

    Args:
        horizon: T, steps (or nodes).

    Returns:
        (k, b) = (1, T).

    Raises:
        InputError: ``horizon`` is not an integer >= 1.

    Examples:
        >>> import noisedesign as nd
        >>> nd.participation.single(3).patterns.tolist()
        [[0], [1], [2]]
    """
    return FixedEpoch(epochs=1, separation=positive_int(horizon, field="horizon"))


def every_step(horizon: int) -> FixedEpoch:
    """One record takes part in all steps: full-batch gradients.

    Args:
        horizon: T, steps.

    Returns:
        (k, b) = (T, 1).

    Raises:
        InputError: ``horizon`` is not an integer >= 1.

    Examples:
        >>> import noisedesign as nd
        >>> nd.participation.every_step(3).patterns.tolist()
        [[0, 1, 2]]
    """
    return FixedEpoch(epochs=positive_int(horizon, field="horizon"), separation=1)
