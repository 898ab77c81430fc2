"""Solving spatial designs of a structure: which nodes may share a seed."""

from __future__ import annotations

import numpy as np

from noisedesign import certificate, decor
from noisedesign._checks import Array, InputError
from noisedesign.backends.base import Monitor, Stop
from noisedesign.formulations import Program
from noisedesign.participation import single
from noisedesign.problem import SpaceProblem
from noisedesign.repair import covariance_of
from noisedesign.structure import SpaceStructure
from noisedesign.structured_time import StructuredAnswer


def solve_space_problem(problem: SpaceProblem, *, monitor: Monitor) -> StructuredAnswer:
    """As :func:`solve_space`, of a problem."""
    return solve_space(
        problem.gram, mixing=problem.mixing, structure=problem.structure, budget=problem.budget,
        cap=problem.max_variance, monitor=monitor,
    )  # fmt: skip


def solve_space(
    gram: Array, *, mixing: Array, structure: SpaceStructure, budget: Array, cap: Array | None,
    monitor: Monitor,
) -> StructuredAnswer:  # fmt: skip
    """The best covariance of a structure for H = ``gram``, shape (n, n).

    Raises:
        InputError: caps that no noise of the structure can keep.
    """
    program = Program(gram=gram, participation=single(len(gram)), budget=budget, cap=cap)
    if structure.kind == "decor":
        precision = decor.decor_precision(gram=gram, mixing=mixing, budget=budget, cap=cap)
        return _one_of_a_kind(program, precision)
    if structure.kind == "independent" and not structure.known_seeds:
        return _one_of_a_kind(program, np.diag(budget))
    raise InputError("structure.space", expected="decor or independent", got=structure.kind)


def _one_of_a_kind(program: Program, precision: Array) -> StructuredAnswer:
    covariance = covariance_of(program, precision)
    judged = certificate.judge_covariance(program, covariance, bound=0.0)
    return StructuredAnswer(
        matrix=covariance, certificate=judged, stop=Stop.SOLVED, evaluations=1, local=True
    )
