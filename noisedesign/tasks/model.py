"""Which program in matrix inequalities a problem is, in its own units; what is none is refused."""

from __future__ import annotations

from noisedesign.base.checks import InputError, one_of
from noisedesign.conic.program import Assembly, ConicProgram, require_size, triangle
from noisedesign.families import structured_models as structured
from noisedesign.families.banded.bound import banded_program
from noisedesign.families.disjoint import conic_model
from noisedesign.families.disjoint import formulations as standard
from noisedesign.families.kronecker.workload import joint_program
from noisedesign.families.observers import ObserverProgram
from noisedesign.families.observers.bound import ObservedNoise
from noisedesign.families.observers.family import observer_problem
from noisedesign.families.shared_seeds.family import clique_program
from noisedesign.program.problem import Problem, SpaceProblem, SpaceTimeProblem, TimeProblem
from noisedesign.program.program import Program, is_structured, program_of
from noisedesign.program.temporal import temporal_program

COMPACT, COVARIANCE, PAPER = "compact", "covariance", "paper"
FORMULATIONS = (COMPACT, COVARIANCE, PAPER)

CONVEX = "dense and banded in time, any structure in space, and joint = 'full' in space-time"


def conic_program(problem: Problem, *, formulation: str | None = None) -> ConicProgram:
    """The program of a problem whose optimum is the objective that :func:`noisedesign.solve` finds.

    Nothing is normalised: squared error of the noise per coordinate of the model, summed as the
    objective says, at the budgets of the problem.

    Args:
        formulation: "compact", "covariance" or "paper", see
            :mod:`noisedesign.families.disjoint.formulations`; by default the first that holds the
            problem. Limits on variances turn "compact" into "covariance".

    Raises:
        InputError: a structure that is not convex; a formulation that cannot hold the problem; a
            model of too many coefficients; what the solvers of such problems refuse.
    """
    if formulation is not None:
        one_of(formulation, field="formulation", allowed=FORMULATIONS)
    remarks: tuple[str, ...] = ()
    if isinstance(problem, SpaceTimeProblem) or not is_structured(problem):
        program = _full_program(problem)
        chosen, assembly = _standard(program, formulation)
        if program.cap is None and program.null_space.shape[1]:
            remarks = (
                "H is singular and nothing caps the noise: the infimum may not be attained.",
            )
    else:
        in_space = isinstance(problem, SpaceProblem)
        chosen = COVARIANCE if in_space else COMPACT
        if formulation not in (None, chosen):
            raise InputError(
                "formulation", expected=f'"{chosen}" for such a problem', got=f'"{formulation}"'
            )
        assembly = _of_nodes(problem) if isinstance(problem, SpaceProblem) else _of_steps(problem)
    return assembly.finished(name=problem.name, formulation=chosen, remarks=remarks)


def _full_program(problem: Problem) -> Program:
    if not isinstance(problem, SpaceTimeProblem):
        return program_of(problem)
    if problem.joint != "full":
        raise _not_convex("structure.joint", f'"{problem.joint}", a product of two unknowns')
    joint = joint_program(problem)
    # Before H of all pairs of node and step is formed.
    coordinates = joint.workload.nodes * joint.workload.horizon
    require_size(triangle(coordinates), of=f"{coordinates:,} pairs of node and step")
    return joint.full_program(cap=problem.max_variance)


def _standard(program: Program, formulation: str | None) -> tuple[str, Assembly]:
    chosen = formulation or COMPACT
    if (reason := conic_model.refusal(program, chosen)) is not None:
        raise InputError(
            "formulation",
            expected="one that holds this problem",
            got=f"{chosen}, which cannot hold {reason}",
        )
    if chosen == COMPACT and program.limited:
        chosen = COVARIANCE
    build = {COMPACT: standard.compact, COVARIANCE: standard.covariance, PAPER: standard.paper}[
        chosen
    ]
    return chosen, build(program)


def _of_steps(problem: TimeProblem) -> Assembly:
    scheme, structure = problem.participation, problem.structure
    if structure.kind == "banded":
        assert structure.bands is not None
        return structured.banded(
            banded_program(gram=problem.gram, participation=scheme, bands=structure.bands)
        )
    if structure.restricts or scheme.disjoint:
        raise _not_convex("structure.time", f'"{structure}"')
    return structured.every_pattern(
        temporal_program(gram=problem.gram, participation=scheme), scheme
    )


def _of_nodes(problem: SpaceProblem) -> Assembly:
    if problem.observers:
        return structured.against_observers(_in_own_units(problem))
    if problem.structure.kind == "decor":
        return structured.decor_family(problem)
    return structured.cliques(clique_program(problem))


def _in_own_units(problem: SpaceProblem) -> ObserverProgram:
    """The program against observers, its noise no longer in units of each node's budget."""
    asked = observer_problem(problem)
    scaled = asked.program()
    return ObserverProgram(
        gram=asked.gram,
        cap=asked.cap,
        observers=tuple(
            ObservedNoise(responses=seen.responses / asked.unit, signals=seen.signals)
            for seen in scaled.observers
        ),
    )


def _not_convex(field: str, got: str) -> InputError:
    return InputError(
        field,
        expected=f"a problem that is convex: {CONVEX}",
        got=got,
        remedy="No file of conic programs holds another; `solve` searches it for a local optimum.",
    )
