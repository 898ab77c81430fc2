"""The program of a problem in matrix inequalities, in its own units."""

from __future__ import annotations

from dataclasses import replace

from noisedesign.base import checks as _checks
from noisedesign.conic.program import ConicProgram
from noisedesign.families.family import Form, family_of
from noisedesign.problem.problem import Problem, problem_of


def conic_program(problem: Problem, *, formulation: str | None = None) -> ConicProgram:
    """The program of a problem whose optimum is the objective that :func:`noisedesign.solve` finds.

    Nothing is normalised: squared error of the noise per coordinate of the model, summed as the
    objective says, at the budgets of the problem.

    Args:
        problem: a convex one, or what has one, as a loaded file and a design do.
        formulation: "compact", "covariance" or "paper", see
            :mod:`noisedesign.families.disjoint.model`; by default the first that holds the
            problem. Limits on variances turn "compact" into "covariance".

    Returns:
        A linear objective under matrix inequalities, in sparse entries.

    Raises:
        InputError: a structure that is not convex; a formulation that cannot hold the problem; a
            model of too many coefficients; what the solvers of such problems refuse.

    Examples:
        >>> import noisedesign as nd
        >>> from noisedesign.tasks.model import conic_program
        >>> program = conic_program(nd.TimeProblem.prefix(participation=nd.participation.single(2)))
        >>> program.name, len(program.blocks) > 0
        ('time', True)
    """
    problem = problem_of(problem)
    if formulation is not None:
        _checks.text(formulation, field="formulation")
    family = family_of(problem)
    model = family.model(family.program(problem), Form(formulation))
    return replace(model.conic, name=problem.name)
