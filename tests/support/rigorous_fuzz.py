"""What families prove of random instances, each claim against its truth in balls.

``python -m tests.support.rigorous_fuzz --seed 1 --instances 1000 [--families space time ...]``

A claim is false where the truth is certainly on its other side: an objective outside of its
interval, a sensitivity, a variance or a floor above what is claimed, a bound above what it can be
(:mod:`tests.support.rigorous_instances`, :mod:`tests.support.rigorous_others`). The exit code is 1
then. An instance of which nothing finite is claimed counts as declined.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from noisedesign.base.checks import InputError
from noisedesign.certify.rigorous import UNPROVED
from noisedesign.design.proof import UNFIT
from tests.support.balls import arb, flint
from tests.support.rigorous_instances import FAMILIES, Instance
from tests.support.rigorous_others import OTHERS

KINDS = FAMILIES | OTHERS
BITS = 1600  # numbers from 1e-150 to 1e150 leave 600 of them


class Claim(NamedTuple):
    """A number that is said to be at least the truth, ``sign`` 1, or at most, -1."""

    name: str
    said: float
    truth: Any
    sign: int

    @property
    def false(self) -> bool:
        """Whether the truth is certainly on the other side."""
        return bool((arb(self.said) - self.truth) * self.sign < 0)

    @property
    def margin(self) -> float:
        """How far it is from the truth, relative to that."""
        away = (arb(self.said) - self.truth) * self.sign / abs(self.truth)
        return float(away.mid()) if away.is_finite() else math.inf


@dataclass
class Tally:
    """What came of the instances of one family."""

    instances: int = 0
    declined: int = 0
    claims: int = 0
    margin: float = math.inf
    false: list[str] = field(default_factory=list)


def claims(instance: Instance) -> Iterator[Claim]:
    """All finite numbers that are claimed."""
    judged, bound = None, UNPROVED
    with contextlib.suppress(*UNFIT):
        judged = instance.judge()
    if instance.bound is not None:
        with contextlib.suppress(*UNFIT):
            bound = instance.bound(judged)
    if judged is not None:
        low, high = judged.objective
        if math.isfinite(high):
            error = instance.error()
            yield Claim("objective", high, error, 1)
            yield Claim("objective from below", low, error, -1)
        for name, said, truth in (
            ("sensitivity", judged.sensitivity_squared, instance.sensitivity),
            ("variance", judged.variance_ratio, instance.variance),
            ("floor", judged.floor_ratio, instance.floor),
        ):
            if said is not None and math.isfinite(said) and truth is not None:
                yield Claim(name, said, truth(), 1)
    if instance.most is not None and bound.lower > 0:
        yield Claim("bound", bound.lower, instance.most(), -1)


def fuzz(name: str, *, seed: int, instances: int) -> Tally:
    """So many instances of a family, each of its own seed."""
    found = Tally(instances=instances)
    for number in range(instances):
        rng = np.random.default_rng([seed, list(KINDS).index(name), number])
        with flint.ctx.workprec(BITS), np.errstate(all="ignore"):
            try:
                instance = KINDS[name](rng)
            except InputError:  # no such problem
                found.declined += 1
                continue
            every = list(claims(instance))
            found.claims += len(every)
            found.declined += not every
            for claim in every:
                if claim.false:
                    said = f"{claim.name} {claim.said!r}, in truth {claim.truth.str(20)}"
                    found.false.append(f"{name} {number}: {said}")
                else:
                    found.margin = min(found.margin, claim.margin)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table of families; 1 where a claim is false."""
    parser = argparse.ArgumentParser(prog="rigorous_fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--instances", type=int, default=1000, help="of every family (1000)")
    parser.add_argument("--families", nargs="+", choices=list(KINDS), default=list(KINDS))
    asked = parser.parse_args(arguments)
    print("family        instances  declined  claims  false  tightest margin")
    wrong = 0
    for name in asked.families:
        found = fuzz(name, seed=asked.seed, instances=asked.instances)
        row = f"{name:13} {found.instances:9} {found.declined:9} {found.claims:7}"
        print(f"{row} {len(found.false):6}  {found.margin:.1e}", flush=True)
        print("".join(f"  false: {words}\n" for words in found.false), end="")
        wrong += len(found.false)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
