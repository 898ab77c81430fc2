"""The contract of a kind of noise: its family answers for it, and one function finds the family.

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
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np

from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.enclosures import Interval
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.certify import rigorous
from noisedesign.certify.certificate import Certificate, ProvedBound, judge_covariance
from noisedesign.certify.program import Program
from noisedesign.certify.rigorous import Judged, NotProvedError
from noisedesign.forms import Noise
from noisedesign.forms.registry import REGISTRY
from noisedesign.forms.structure import SpaceStructure
from noisedesign.privacy.views import Observer
from noisedesign.problem.problem import Problem, SpaceProblem, unstructured

if TYPE_CHECKING:
    from noisedesign.conic.data import Errors, Point
    from noisedesign.conic.program import ConicProgram, ModelSize
    from noisedesign.privacy.seeds import SeedPlan

Q = TypeVar("Q")
P = TypeVar("P")

Arrays = Mapping[str, Array]  # arrays by the names they have in a design file


@dataclass(frozen=True)
class ArraySpec:
    """An array of a design file; ``axes`` are letters of :meth:`Family.sizes`, or ``ANY``."""

    kind: str
    axes: str
    multiplier: bool = True  # whether it proves a bound, and no part of the noise itself


LOCAL, BEST_FOUND, STATISTICAL = "local-optimum", "best-found", "statistical"
SEARCHED = (LOCAL, BEST_FOUND, STATISTICAL)
"""Status of answers that no certificate calls optimal: local, the best met, statistical."""

ANY = "*"

OPERATIONS_PER_CALL = 1e5  # operations that take the time of one call of a small numpy function


@dataclass(frozen=True, kw_only=True, eq=False)
class Answer:
    """The answer of a solver; nobody has judged it yet.

    ``noises`` are one answer made feasible in several ways, cheap ones first, as they are asked
    for; ``proof`` the multipliers and what else its family keeps, by name; ``evaluations`` those of
    native solvers, or conic iterations; ``measure`` the DIMACS errors of the conic model."""

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
"""Solves a model and reads the answer, without noise or proof where there is no point."""


class Form(NamedTuple):
    """The form of a model: a formulation, scaled units or the problem's, and its parts."""

    formulation: str | None = None
    scaled: bool = False
    parts: int = 1

    def only(self, formulation: str) -> None:
        """Check the formulation asked for of a family that has only one."""
        asked = self.formulation
        if asked not in (None, formulation):
            expected = f'"{formulation}" for such a problem'
            raise InputError("formulation", expected=expected, got=f'"{asked}"')


class Family(ABC, Generic[Q, P]):
    """One representation of the feasible set; ``program`` is whatever it makes of a problem.

    Every family answers these twelve members; what some can do besides is in the mixins below."""

    name: ClassVar[str]
    convex: ClassVar[bool] = True
    """Whether what ``solve`` returns is the optimum; else the best that a search found."""
    structured: ClassVar[bool] = True
    """Whether it asks for more than (P) of one Gram matrix, with noise of any structure."""
    bounds_all: ClassVar[bool] = False
    """Whether ``bound`` holds for noise of every structure, where no relaxed problem says more."""
    trust: ClassVar[str] = "local"  # the adversary that the noise protects from, as designs say it
    gap: ClassVar[float] = settings.DEFAULT_GAP  # the relative gap asked for by default
    proof: ClassVar[Mapping[str, ArraySpec]]
    """The arrays of a design file besides the noise: multipliers, or the parts of the noise."""
    short: ClassVar[str] = ""
    """Advice where our own solver falls short of a gap; else its backend knows."""

    @abstractmethod
    def program(self, problem: Q) -> P:
        """State the program of a problem, or raise InputError where the family cannot hold it."""

    @abstractmethod
    def solve(self, program: P, *, monitor: Monitor) -> Answer:
        """Answer by our own solver; InputError where nothing is feasible or bounds the noise."""

    def model(self, program: P, form: Form) -> Model:
        """Model the program in matrix inequalities; InputError where no formulation holds it."""
        raise not_convex("structure", self.name)

    @abstractmethod
    def bound(
        self,
        program: P,
        proof: Arrays,
        *,
        noise: Noise | None = None,
        negligible: float = settings.NEGLIGIBLE,
    ) -> ProvedBound:
        """Bound the error of all noise of the family, whoever made ``proof``; 0 proves nothing.

        Multipliers follow from ``noise`` where ``proof`` does not hold them; rounding below the
        relative ``negligible`` need not be computed away."""

    @abstractmethod
    def judge(self, program: P, noise: Noise, proof: Arrays, *, bound: float) -> Certificate:
        """Certify noise at its own scale. ``bound`` is passed on."""

    def rigorous_judge(self, program: P, noise: Noise, proof: Arrays) -> Judged:
        """Judge noise with every rounding accounted for; NotProvedError says why not."""
        raise NotProvedError(f"noise of the family {self.name!r} is not covered")

    def rigorous_bound(
        self,
        program: P,
        proof: Arrays,
        *,
        noise: Noise | None = None,
        judged: Judged | None = None,
        enough: float = 0.0,
    ) -> Interval:
        """:meth:`bound` with every rounding accounted for: its lower end.

        The upper end is about what ``proof`` is worth but for rounding. ``judged`` is nearly
        optimal noise, which makes it quick; a bound better than ``enough`` is not worth its cost.
        """
        raise NotProvedError(f"bounds of the family {self.name!r} are not covered")

    def departure(self, program: P, noise: Noise, proof: Arrays) -> float:
        """The distance of noise from the structure, relative to its largest entry."""
        return 0.0

    @abstractmethod
    def independent(self, program: P) -> Noise:
        """Independent noise at the same budgets (LDP)."""

    @abstractmethod
    def independent_error(self, problem: Q) -> float:
        """The error of independent noise at the budgets of a problem, squared noise."""

    def relaxed(self, problem: Q) -> Problem | None:
        """The same problem without its structure; None where it has none."""
        return None

    def prices(self, problem: Q, noise: Noise, proof: Arrays) -> Mapping[str, float]:
        """The percentages by which the bound falls if a squared budget is raised by one: of every
        node, or in time of every pattern that has a multiplier. Empty without such multipliers."""
        return {}

    def sizes(self, problem: Q) -> dict[str, int]:
        """Letter -> length, of the axes of ``proof``."""
        return {}


AnyFamily = Family[Any, Any]


def named_shares(names: Iterable[str], paid: Array, times: float = 1.0) -> dict[str, float]:
    """Names with the shares of what is paid for each, times a number; nothing where all are 0."""
    total = float(paid.sum())
    if not 0 < total < np.inf:
        return {}
    return dict(zip(names, (paid * (times / total)).tolist(), strict=True))


def pattern_name(steps: Iterable[int]) -> str:
    """The name of a pattern of steps, counted from 0; of many equally far apart, in short."""
    told = [str(step) for step in steps]
    if len(told) > 5 and len(set(np.diff([int(step) for step in told]).tolist())) == 1:
        told[2:-1] = ["..."]
    return f"steps {', '.join(told)}"


class Optioned(ABC, Generic[P]):
    """A family whose own solver runs on devices, keeps checkpoints, starts from multipliers."""

    @abstractmethod
    def without_options(self, program: P) -> str | None:
        """Name who can do only the first of these for a program; None where all three are had."""

    @abstractmethod
    def start(self, program: P, start: Any) -> Array | None:
        """The multipliers that a solve of ``program`` begins with, of what the user gave."""

    @abstractmethod
    def multipliers(self, program: P, *, monitor: Monitor) -> Arrays:
        """The arrays that prove the bound, where nobody asks for the noise."""


class Modelled(Generic[P]):
    """A family with a ``model``, which conic solvers can take."""

    formulations: ClassVar[tuple[str, ...]]
    """Formulations of the model, the default first."""

    def unable(self, program: P, formulation: str) -> str | None:
        """Say why a formulation cannot hold a program, or None."""
        return None

    def attained(self, program: P, *, time_limit: float | None) -> None:
        """Raise InputError where nothing bounds the noise, before a foreign solver runs."""

    def model_size(
        self, program: P, form: Form, *, size: int | None = None, rank: int | None = None
    ) -> ModelSize | None:
        """The size of the scaled model, told without building it; None where only that tells.

        ``size`` and ``rank`` are those of another program and its H; by default its own, whose rank
        may take as long as a decomposition."""
        return None

    def answer_by(self, program: P, ask: Ask, form: Form, *, monitor: Monitor) -> Answer:
        """Answer by a conic solver."""
        family: Any = self
        return ask(family.model(program, form))


class Uncapped(NamedTuple):
    """A lower bound on the error of noise without a cap, and of which noise it is one."""

    bound: float
    beside: str


class Cappable(ABC, Generic[P]):
    """A family that can tell what a cap costs which nobody asked for."""

    @abstractmethod
    def without_cap(self, program: P, noise: Noise, proof: Arrays, *, monitor: Monitor) -> Uncapped:
        """Bound the error without the cap of ``program``, whose answer this is."""


class Weighable:
    """A family with multipliers for every budget of a node or pattern."""

    @abstractmethod
    def weighed(self, proof: Arrays, factors: Array) -> Arrays:
        """The multipliers with those of every budget times its factor, shape (budgets,)."""


class Costly(Generic[Q, P]):
    """A family that tells what large problems cost, and judges in haste where time is short."""

    gap: ClassVar[float]

    def work(self, problem: Q) -> float:
        """Operations, up to a factor, to judge a design beyond those on its arrays."""
        return 0.0

    def least_seconds(self, problem: Q) -> float:
        """Seconds that the first answer and its verdict take, about; 0 where they are no matter."""
        return 0.0

    def default_gap(self, program: P) -> float:
        """The relative gap asked for where nobody says one."""
        return self.gap

    def hurried(self, program: P, *, seconds: float) -> P:
        """The program for a judge who has so much time left: it may prove less, and that holds."""
        return program


class Sampled(ABC, Generic[P]):
    """A family whose judge may draw vectors or samples of its own."""

    @abstractmethod
    def afresh(self, program: P, *, seed: int | None = None) -> P:
        """The program for a judge who did not make the design, with random vectors of its own.

        ``seed`` is that of all that is drawn, samples of an account among them. Without it vectors
        come from the operating system; samples stay those the design is stated by (a digest of C).
        """

    def searched(self, program: P) -> str | None:
        """The status of what a search finds where the family is not convex, or None."""
        return LOCAL

    def fixed_bound(self, program: P, proof: Arrays) -> float | None:
        """The bound for fixed participation where it is random; else None."""
        return None

    def rigorous_fixed_bound(self, program: P, proof: Arrays, *, enough: float) -> Interval | None:
        """:meth:`fixed_bound` with every rounding accounted for."""
        return None


class Served(ABC, Generic[Q, P]):
    """A family that judges what a trusted server releases (:func:`released`)."""

    def central(self, problem: Q) -> P | None:
        """The program of a trusted server that adds one noise to the average, or None."""
        return None

    @abstractmethod
    def rigorous_release(self, program: P, noise: Noise) -> Judged:
        """Judge what a trusted server releases with every rounding accounted for."""


class Seeded(ABC, Generic[P]):
    """A family whose noise may be made of shared seeds."""

    @abstractmethod
    def seeds(self, program: P, noise: Noise, proof: Arrays) -> SeedPlan | None:
        """Tell who shares which seed; None of other noise."""

    def parts(self, program: P, variance: Array) -> Arrays:
        """The arrays of ``proof``, besides multipliers, of independent noise of ``variance``."""
        return {}


class Remarked(Generic[Q, P]):
    """A family with more to tell of a design than numbers."""

    def remark(self, program: P, noise: Noise) -> str:
        """Say in a sentence what else there is to know of a design; mostly nothing."""
        return ""

    def foremost(self, problem: Q, noise: Noise) -> Sequence[Observer]:
        """The chosen observers of a problem, or those of very many who are told most."""
        return ()


def certified(
    family: Family[Any, P],
    program: P,
    noise: Noise,
    proof: Arrays,
    *,
    bound: ProvedBound,
    everywhere: float | None,
) -> Certificate:
    """Certify noise; ``everywhere`` is a bound on noise of every structure, where there is one.

    Noise that need not be the optimum of its family has no other bound."""
    value = bound.value if family.convex else max(bound.value, everywhere or 0.0)
    if family.bounds_all and everywhere is None:
        everywhere = value
    fixed = family.fixed_bound(program, proof) if isinstance(family, Sampled) else None
    return replace(
        family.judge(program, noise, proof, bound=value),
        unrestricted_lower_bound=everywhere,
        fixed_lower_bound=fixed,
        rounding=bound.rounding or None,
    )


def released(problem: Problem) -> tuple[AnyFamily, Any]:
    """The judge and the program of what a trusted server releases, which has no structure."""
    family = family_of(problem)
    if (wide := family.relaxed(problem)) is not None:
        problem, family = wide, family_of(wide)
    program = family.central(problem) if isinstance(family, Served) else None
    return family, family.program(problem) if program is None else program


def without_multipliers(family: AnyFamily, proof: Arrays) -> Arrays:
    """The arrays that a design keeps of a proof that proves nothing."""
    return {name: array for name, array in proof.items() if not family.proof[name].multiplier}


def family_of(problem: Problem) -> AnyFamily:
    """The family of a problem: the one place that asks of what kind it is."""
    return family_at(*problem.feasible_set)


@cache
def family_at(axes: str, kind: str) -> AnyFamily:
    """The family of noise of a kind along the axes, by their names in :mod:`.registry`."""
    path, _, name = REGISTRY[axes, kind].module.partition(":")
    found: AnyFamily = getattr(import_module(path), name or "FAMILY")
    return found


def formulations() -> tuple[str, ...]:
    """Names of the formulations of all families, the usual ones first."""
    families = (family_at(*key) for key in REGISTRY)
    modelled = (family for family in families if isinstance(family, Modelled))
    return tuple(dict.fromkeys(name for family in modelled for name in family.formulations))


def not_convex(field: str, got: str) -> InputError:
    """The error where a model is asked of a family that is not convex."""
    modelled: dict[str, list[str]] = {}
    for axes, kind in REGISTRY:
        if isinstance(family_at(axes, kind), Modelled):
            modelled.setdefault(axes, []).append(kind)
    convex = "; ".join(f"in {axes} {', '.join(kinds)}" for axes, kinds in modelled.items())
    expected = f"a problem that is convex ({convex})"
    remedy = "No file of conic programs holds another; `solve` searches it for a local optimum."
    return InputError(field, expected=expected, got=got, remedy=remedy)


S = TypeVar("S", bound=Program)


class SpatialFamily(Family[SpaceProblem, S], Costly[SpaceProblem, S]):
    """Covariances R, shape (n, n), with [R^-1]_ii <= tau_i."""

    def program(self, problem: SpaceProblem) -> S:
        return self.program_of_gram(
            problem.gram,
            mixing=problem.mixing,
            structure=problem.structure,
            budget=problem.budget,
            cap=problem.max_variance,
        )

    @abstractmethod
    def program_of_gram(self, gram: Array, *, structure: SpaceStructure, **of: Any) -> S:
        """The program of an error Gram matrix H, shape (n, n), and other fields."""

    def judge(self, program: S, noise: Noise, proof: Arrays, *, bound: float) -> Certificate:
        return judge_covariance(program, noise.covariance, bound=bound)

    def rigorous_judge(self, program: S, noise: Noise, proof: Arrays) -> Judged:
        return rigorous.judge_covariance(program, noise.covariance)

    def independent(self, program: S) -> Noise:
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
