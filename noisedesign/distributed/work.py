"""The work of a part in a solve and in a verification: the code of one process, over its rows.

Search and judge are those of :mod:`noisedesign.families.polynomial`. Where they need what others
have they ask :mod:`base.together`, which asks the other parts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from noisedesign.base import together
from noisedesign.base.checks import InputError
from noisedesign.base.machine import one_thread
from noisedesign.base.version import version
from noisedesign.distributed import design as designs
from noisedesign.distributed.graph import Part, folder_at, read_part
from noisedesign.distributed.journal import Journal
from noisedesign.distributed.mail import Array, Mail
from noisedesign.distributed.rows import Rows
from noisedesign.distributed.world import World
from noisedesign.families.polynomial import bound as judging
from noisedesign.families.polynomial.operator import Powers
from noisedesign.families.polynomial.program import SparseProgram
from noisedesign.forms import PolynomialCovariance

SEED = 0
"""The seed of the vectors that a solve estimates by, which is that of one process."""

MOST_EXACT = 1414
"""Nodes up to which traces are exact, by arrays of one process: the root of ``judging.PROBED``."""

DIGITS = 16  # of the digest that a checkpoint is named by

Tell = Callable[[str], None]


class InParts(Powers):
    """H = W^2 of a symmetric W by its rows."""

    symmetric = True
    fourth_root = None
    _narrow = _transposed = property(lambda self: self.mixing)


@dataclass(frozen=True, kw_only=True, eq=False)
class ProgramInParts(SparseProgram):
    """The program of all nodes, of which a part has the rows of W and the budgets of its own."""

    def __post_init__(self) -> None:
        """They were checked when they were read."""

    @property
    def size(self) -> int:
        return together.count(len(self.budget))

    @cached_property
    def objective(self) -> Powers:
        return InParts(mixing=self.mixing, counts=self.powers)

    @property
    def independent_error(self) -> float:
        rows: Rows = self.mixing
        # Columns of a symmetric W are its rows.
        return float(together.total(float(np.sum(rows.squares() / self.budget))))


@dataclass(frozen=True)
class Asked:
    """The order that parts are given, with folders that all of them reach."""

    graph: Path
    design: Path
    checkpoint: Path | None = None
    verify: bool = False
    seed: int | None = SEED


def done(asked: Asked, mail: Mail, tell: Tell) -> dict[str, Any]:
    """Solve or verify, and say what part 0 knows of all, and this part of its own."""
    folder = folder_at(asked.graph)
    with one_thread():
        world = World(mail, folder.ends)
        with together.among(world):
            tell("reading the graph")
            part = read_part(folder, world)
            if world.count(0) <= MOST_EXACT:
                expected = f"a graph of more than {MOST_EXACT} nodes"
                remedy = "Solve it in one process: `noisedesign solve`."
                raise InputError("parts", expected=expected, got=f"{world.count(0)}", remedy=remedy)
            if asked.checkpoint is not None:
                world.keep(Journal(_of_problem(asked, part) / f"part-{world.index:05d}"))
            found = _verified(asked, part, tell) if asked.verify else _solved(asked, part, tell)
            most = world.largest(part.budget)
    found["graph"] = {
        "nodes": part.rows.shape[0],
        "entries": part.rows.entries,
        "halo": len(part.rows.halo_nodes),
        "largest_budget": most,
    }
    return found | {"problem": part.problem, "sent": dict(mail.sent)}


def _of_problem(asked: Asked, part: Part) -> Path:
    """The folder of the checkpoint of this problem by this version, among those of others."""
    assert asked.checkpoint is not None
    text = f"{part.problem} {version()} {asked.verify} {asked.seed} {np.__version__}"
    return asked.checkpoint / hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def _solved(asked: Asked, part: Part, tell: Tell) -> dict[str, Any]:
    from noisedesign.families.polynomial import solver

    program = ProgramInParts(mixing=part.rows, budget=part.budget, powers=np.ones(1), seed=SEED)
    tell("first noise")
    noise: PolynomialCovariance | None = None
    for number, (made, operator) in enumerate(
        solver.improving(program, rng=np.random.default_rng(SEED)), start=1
    ):
        tell(f"improving noise {number}")
        noise, weights = made, operator.weights
    assert noise is not None
    found = _judged(program, noise, weights, tell)
    tell("writing the design")
    file = designs.write_part(asked.design, part, noise, weights)
    return found | {"file": file, "noise": designs.few(noise)}


def _verified(asked: Asked, part: Part, tell: Tell) -> dict[str, Any]:
    tell("reading the design")
    noise, weights = designs.read_part(asked.design, part)
    program = ProgramInParts(
        mixing=part.rows, budget=part.budget, powers=np.ones(1), seed=asked.seed
    )
    try:
        with np.errstate(all="ignore"):  # of numbers out of all proportion, which fail below
            return _judged(program, noise, weights, tell)
    except InputError:
        raise
    except (ArithmeticError, ValueError, np.linalg.LinAlgError) as error:
        expected = "numbers whose sums are finite"
        raise InputError(designs.FIELD, expected=expected, got=str(error)) from error


def _judged(
    program: ProgramInParts, noise: PolynomialCovariance, weights: Array, tell: Tell
) -> dict[str, Any]:
    """The certificate's numbers, as the family's judge finds them of a whole graph."""
    tell("certifying it: the bound")
    bound = judging.proved(program, weights, noise)
    tell("certifying it: budgets")
    worst = judging.squared_sensitivity(noise, program.budget)
    tell("certifying it: the error")
    error = judging.error(program, noise)
    return {
        "objective": error.high,
        "lower_bound": bound.low,
        "sensitivity_squared": worst,
        "confidence": judging.CONFIDENCE,
        "uncertainty": error.spread,
        "objective_at_least": error.low,
        "bound_at_most": bound.high,
        "independent_error": program.independent_error,
    }
