"""What is asked of a kind of noise: a family answers for it, and one function finds the family.

Every problem minimises tr(H cov(z)) within budgets; families differ in how they represent the
feasible set. A family states its program, solves it, models it for other solvers, bounds it and
judges what is exported. ``bound``, ``judge`` and ``departure`` are plain numpy and know no solver.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.enclosures import Interval
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.privacy.views import Observer
from noisedesign.program.certificate import Certificate, ProvedBound, judge_covariance
from noisedesign.program.noise import Noise
from noisedesign.program.problem import Problem, SpaceProblem, unstructured
from noisedesign.program.registry import REGISTRY
from noisedesign.program.rigorous import Judged, NotProvedError
from noisedesign.program.structure import SpaceStructure

if TYPE_CHECKING:
    from noisedesign.conic.data import Errors, Point
    from noisedesign.conic.program import ConicProgram, ModelSize
    from noisedesign.privacy.seeds import SeedPlan

Arrays = Mapping[str, Array]
"""Arrays by the names they have in a design file."""


@dataclass(frozen=True)
class ArraySpec:
    """An array of a design file.

    ``kind`` names it in the mathematics; ``axes`` are letters of :meth:`Family.sizes`, ``ANY``
    where its shape does not follow from the problem and its reader checks it.
    """

    kind: str
    axes: str
    multiplier: bool = True
    """Whether it proves a bound, and no part of the noise itself."""


LOCAL, BEST_FOUND, STATISTICAL = "local-optimum", "best-found", "statistical"
SEARCHED = (LOCAL, BEST_FOUND, STATISTICAL)
"""Status of an answer that is not certified to be the optimum: what a search found where the
feasible set is not convex, at a point where no small change helps, or the best that it met; or
certified to the gap asked for with a confidence short of certainty."""

ANY = "*"

OPERATIONS_PER_CALL = 1e5
"""What one call of a small numpy function takes of the time of an operation."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Answer:
    """What a solver found; nobody has judged it yet.

    Attributes:
        stop: why it stopped.
        noises: the same answer made feasible in one way after another, the cheap ways first; made
            as they are asked for, and none where there is nothing to export.
        proof: the multipliers that prove the bound, and what else its family keeps, by name.
        message: what went wrong.
        evaluations: of the dual or of the objective by native solvers, iterations by conic ones.
        measure: the DIMACS errors of the conic model as it was solved, computed on demand.
    """

    stop: Stop
    noises: Iterable[Noise] = ()
    proof: Arrays = field(default_factory=dict)
    message: str = ""
    build_seconds: float = 0.0
    solve_seconds: float = 0.0
    evaluations: int = 0
    measure: Callable[[], Errors | None] = lambda: None


@dataclass(frozen=True, kw_only=True, eq=False)
class Model:
    """A program in matrix inequalities, and how to read an answer from a point of it."""

    conic: ConicProgram
    read: Callable[[Point], Answer]


Ask = Callable[[Model], Answer]
"""Solves a model and reads the answer, without noise or proof where the solver came back with
none."""


class Form(NamedTuple):
    """Of a model: one of :attr:`Family.formulations`, None for the default. ``scaled`` to units in
    which absolute tolerances of solvers mean the same everywhere, else in those of the problem. A
    formulation that can be cut is cut into so many ``parts``."""

    formulation: str | None = None
    scaled: bool = False
    parts: int = 1

    def only(self, formulation: str) -> None:
        """The formulation of a family that has only one.

        Raises:
            InputError: another is asked for.
        """
        asked = self.formulation
        if asked not in (None, formulation):
            expected = f'"{formulation}" for such a problem'
            raise InputError("formulation", expected=expected, got=f'"{asked}"')


class Family(ABC):
    """One representation of the feasible set. ``program`` stands for whatever it makes of a
    problem; nothing else of the family asks for the problem."""

    name: ClassVar[str]
    convex: ClassVar[bool] = True
    """Whether what ``solve`` returns is the optimum; else the best that a search found."""
    structured: ClassVar[bool] = True
    """Whether it asks for more than (P) of one Gram matrix, with noise of any structure."""
    trust: ClassVar[str] = "local"
    """Who the noise protects from, as designs say it."""
    gap: ClassVar[float] = settings.DEFAULT_GAP
    """That of :meth:`default_gap`, mostly."""
    proof: ClassVar[Mapping[str, ArraySpec]]
    """What a design file holds of it besides the noise: multipliers, or the parts of the noise."""
    short: ClassVar[str] = ""
    """What to do where our own solver falls short of a gap; else its backend knows."""
    formulations: ClassVar[tuple[str, ...]] = ()
    """Of its model, the default first; none where it has no model."""

    @abstractmethod
    def program(self, problem: Any) -> Any:
        """The program of a problem.

        Raises:
            InputError: the family cannot hold the problem.
        """

    def work(self, problem: Any) -> float:
        """Operations, up to a factor, to judge a design beyond those on matrices of the sizes of
        its arrays."""
        return 0.0

    def afresh(self, program: Any, *, seed: int | None = None) -> Any:
        """The program for a judge who did not make the design: with random vectors of its own,
        where any are drawn.

        Args:
            seed: of all that is drawn, samples of an account among them. By default vectors come
                from the operating system; samples stay those that the design is stated by, which
                nobody has chosen either (a digest of C).
        """
        return program

    def hurried(self, program: Any, *, seconds: float) -> Any:
        """The program for a judge who has so much time left: what it proves holds whatever that is,
        and may be less."""
        return program

    def central(self, problem: Any) -> Any:
        """The program of a trusted server that adds one noise to the average of all nodes, where it
        is another; else None."""
        return None

    def released(self, problem: Any) -> tuple[Family, Any]:
        """Who judges what a trusted server releases, and the program of it: whatever structure is
        asked of the noise of nodes, that of a server has none."""
        wide = self.relaxed(problem)
        family, asked = (self, problem) if wide is None else (family_of(wide), wide)
        program = family.central(asked)
        return family, family.program(asked) if program is None else program

    @abstractmethod
    def solve(self, program: Any, *, monitor: Monitor) -> Answer:
        """The answer of our own solver.

        Raises:
            InputError: nothing is feasible, or nothing bounds the optimal noise.
        """

    def default_gap(self, program: Any) -> float:
        """The relative gap asked for where nobody says one."""
        return self.gap

    def multipliers(self, program: Any, *, monitor: Monitor) -> Arrays:
        """What proves the bound, where nobody asks for the noise."""
        return self.solve(program, monitor=monitor).proof

    def without_options(self, program: Any) -> str | None:
        """Who can neither choose a device, nor keep a checkpoint, nor start from multipliers; None
        where the native solver can."""
        return "those of structured and space-time designs"

    def on_device(self, program: Any) -> bool:
        """Whether the native solver can choose a device."""
        return self.without_options(program) is None

    def attained(self, program: Any, *, time_limit: float | None) -> None:  # noqa: B027 - mostly is
        """Asked before a solver that is not ours sees the program.

        Raises:
            InputError: nothing bounds the optimal noise.
        """

    def remark(self, program: Any, noise: Noise) -> str:
        """What else there is to say of a design, in a sentence; mostly nothing."""
        return ""

    def model(self, program: Any, form: Form) -> Model:
        """The program in matrix inequalities.

        Raises:
            InputError: the family is not convex, or the formulation cannot hold the program.
        """
        raise not_convex("structure", self.name)

    def unable(self, program: Any, formulation: str) -> str | None:
        """Why a formulation cannot hold a program, or None."""
        return None

    def model_size(
        self, program: Any, form: Form, *, size: int | None = None, rank: int | None = None
    ) -> ModelSize | None:
        """How large the scaled model is, told without building it; None where only that tells.

        Args:
            size, rank: of another program of the kind and of its H; by default its own, of which
                the rank may take as long as a decomposition.
        """
        return None

    def answer_by(self, program: Any, ask: Ask, form: Form, *, monitor: Monitor) -> Answer:
        """The answer of a conic solver."""
        return ask(self.model(program, form))

    @abstractmethod
    def bound(
        self,
        program: Any,
        proof: Arrays,
        *,
        noise: Noise | None = None,
        negligible: float = settings.NEGLIGIBLE,
    ) -> ProvedBound:
        """No noise of the family has a smaller error, whoever made ``proof``; 0 proves nothing.

        Args:
            noise: what the multipliers follow from where ``proof`` does not hold them itself.
            negligible: relative rounding of the bound that need not be computed away.
        """

    @abstractmethod
    def judge(self, program: Any, noise: Noise, proof: Arrays, *, bound: float) -> Certificate:
        """The certificate of noise at its own scale. ``bound`` is passed on."""

    def rigorous_judge(self, program: Any, noise: Noise, proof: Arrays) -> Judged:
        """What is proved of noise with every rounding accounted for.

        Raises:
            NotProvedError: why nothing is.
        """
        raise NotProvedError(f"noise of the family {self.name!r} is not covered")

    def rigorous_release(self, program: Any, noise: Noise) -> Judged:
        """What is proved of what a trusted server releases: the program is that of
        :meth:`released`, the squared sensitivity that of the average of all nodes.

        Raises:
            NotProvedError: why nothing is.
        """
        raise NotProvedError(f"a trusted server's noise of the family {self.name!r} is not covered")

    def rigorous_bound(
        self,
        program: Any,
        proof: Arrays,
        *,
        noise: Noise | None = None,
        judged: Judged | None = None,
        enough: float = 0.0,
    ) -> Interval:
        """:meth:`bound` with every rounding accounted for: its lower end. The upper end is about
        what ``proof`` is worth but for rounding.

        Args:
            noise: as of :meth:`bound`.
            judged: noise that is nearly optimal, which helps to be quick.
            enough: a bound from which on a better one is not worth its cost.

        Raises:
            NotProvedError: why nothing is proved.
        """
        raise NotProvedError(f"bounds of the family {self.name!r} are not covered")

    def rigorous_fixed_bound(
        self, program: Any, proof: Arrays, *, enough: float
    ) -> Interval | None:
        """Under random participation, :meth:`rigorous_bound` on designs for participation that an
        adversary chooses; None elsewhere.

        Raises:
            NotProvedError: why nothing is proved.
        """
        return None

    def departure(self, program: Any, noise: Noise, proof: Arrays) -> float:
        """How far noise is from the structure, relative to its largest entry; 0 up to rounding
        where it has it."""
        return 0.0

    @abstractmethod
    def independent(self, program: Any) -> Noise:
        """Independent noise at the same budgets (LDP)."""

    @abstractmethod
    def independent_error(self, problem: Any) -> float:
        """The error of independent noise at the budgets of a problem, squared noise."""

    def foremost(self, problem: Any, noise: Noise) -> Sequence[Observer]:
        """The chosen observers of a problem, or those of very many who are told most."""
        return ()

    def relaxed(self, problem: Any) -> Problem | None:
        """The same problem without its structure; None where it has none."""
        return None

    def seeds(self, program: Any, noise: Noise, proof: Arrays) -> SeedPlan | None:
        """Who shares which seed of noise that is made of shared seeds; None of other noise."""
        return None

    def searched(self, program: Any) -> str | None:
        """The status of what a search finds, of a family that is not convex; None where its gap
        says all, as elsewhere."""
        return LOCAL

    def parts(self, program: Any, variance: Array) -> Arrays:
        """What ``proof`` holds, besides multipliers, of independent noise of ``variance``."""
        return {}

    def without_multipliers(self, proof: Arrays) -> Arrays:
        """What a design keeps of a proof that proves nothing."""
        return {name: array for name, array in proof.items() if not self.proof[name].multiplier}

    def sizes(self, problem: Any) -> dict[str, int]:
        """Letter -> length, of the axes of ``proof``."""
        return {}

    def start(self, program: Any, start: Any) -> Array | None:
        """What a solve of ``program`` begins with, of what the user wants to start from."""
        return None

    def certificate(
        self,
        program: Any,
        noise: Noise,
        proof: Arrays,
        *,
        bound: ProvedBound,
        everywhere: float | None,
    ) -> Certificate:
        """What is proved of noise.

        Args:
            bound: of :meth:`bound`.
            everywhere: a bound on noise of every structure, where there is one of its own. Noise
                that need not be the optimum of its family has no other bound.
        """
        value = bound.value
        if not self.convex:
            value = max(value, everywhere or 0.0)
        judged = self.judge(program, noise, proof, bound=value)
        return replace(judged, unrestricted_lower_bound=everywhere, rounding=bound.rounding or None)


def family_of(problem: Problem) -> Family:
    """The family of a problem: the one place that asks of what kind it is."""
    return family_at(*problem.feasible_set)


def family_at(axes: str, kind: str) -> Family:
    """The family of noise of a kind along the axes, by their names in :mod:`.registry`."""
    return _imported(REGISTRY[axes, kind].module)


@cache
def _imported(module: str) -> Family:
    found: Family = import_module(module).FAMILY
    return found


def formulations() -> tuple[str, ...]:
    """Those of the models of all families, the usual ones first."""
    families = (family_at(*key) for key in REGISTRY)
    return tuple(dict.fromkeys(name for family in families for name in family.formulations))


CONVEX = (
    "dense and banded in time, structures in space but polynomial and pairwise ones, and "
    "joint = 'full' in space-time"
)


def not_convex(field: str, got: str) -> InputError:
    """What a family that is not convex has instead of a model."""
    remedy = "No file of conic programs holds another; `solve` searches it for a local optimum."
    return InputError(field, expected=f"a problem that is convex: {CONVEX}", got=got, remedy=remedy)


class SpatialFamily(Family):
    """Covariances R, shape (n, n), with [R^-1]_ii <= tau_i."""

    def program(self, problem: SpaceProblem) -> Any:
        return self.program_of_gram(
            problem.gram,
            mixing=problem.mixing,
            structure=problem.structure,
            budget=problem.budget,
            cap=problem.max_variance,
        )

    @abstractmethod
    def program_of_gram(self, gram: Array, *, structure: SpaceStructure, **of: Any) -> Any:
        """The program of an error Gram matrix H, shape (n, n), and of what :meth:`program` hands
        over besides."""

    def judge(self, program: Any, noise: Noise, proof: Arrays, *, bound: float) -> Certificate:
        return judge_covariance(program, noise.covariance, bound=bound)

    def independent(self, program: Any) -> Noise:
        room = 1 + 4 * settings.rank_tolerance(1)
        return Noise.of_covariance(np.diag(room / program.budget))

    def independent_error(self, problem: SpaceProblem) -> float:
        return float(np.sum(np.diagonal(problem.gram) / problem.budget))

    def work(self, problem: SpaceProblem) -> float:
        return work_of_gram(problem)

    def relaxed(self, problem: SpaceProblem) -> SpaceProblem | None:
        if not problem.structure.restricts:
            return None
        return unstructured(problem)

    def sizes(self, problem: SpaceProblem) -> dict[str, int]:
        return {"n": len(problem.nodes)}


def work_of_gram(problem: SpaceProblem) -> float:
    """Operations to form H, shape (n, n), of an error over all its steps."""
    steps = float(problem.horizon)
    return steps**3 + steps * float(len(problem.nodes)) ** 3
