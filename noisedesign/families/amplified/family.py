"""Strategies without negative entries: the best that a search finds, beside bounds.

Under random participation noise meets the privacy target by an account, and two bounds are stated:
on all linear mechanisms, and on designs for an adversary's choice of steps, which may be above."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from noisedesign.base.checks import Array, InputError
from noisedesign.base.enclosures import Interval
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.certify.certificate import (
    Certificate,
    ProvedBound,
    judge_strategy as judged_strategy,
    proved_bound,
)
from noisedesign.certify.program import DualPoint, uniform_dual
from noisedesign.certify.rigorous import (
    RANDOM,
    Judged,
    NotProvedError,
    disjoint_bound,
    judge_strategy,
)
from noisedesign.families.amplified.bound import leveled, relief
from noisedesign.families.amplified.program import NonnegativeProgram, equivalent_sensitivity
from noisedesign.families.family import (
    BEST_FOUND,
    Answer,
    Arrays,
    ArraySpec,
    Form,
    Model,
    Sampled,
    family_at,
    not_convex,
)
from noisedesign.families.temporal import (
    TemporalFamily,
    binding_prices,
    largest_share,
    rigorous_uniform_bound,
    temporal_program,
)
from noisedesign.families.toeplitz.bound import lower_bound_of_unrestricted_optimum
from noisedesign.families.toeplitz.program import ToeplitzProgram
from noisedesign.forms import DenseStrategy, Noise
from noisedesign.forms.structure import TimeStructure
from noisedesign.privacy.runs import DRAWN
from noisedesign.problem.calibration import required_target
from noisedesign.problem.problem import TimeProblem
from noisedesign.system.workloads.toeplitz import GramWorkload

EVERY_RECORD = "every record"
SEARCHED_SLACK = 1e-2  # relative slack that a search over all columns leaves, up to 6e-4 in tests


class Nonnegative(TemporalFamily[NonnegativeProgram], Sampled[NonnegativeProgram]):
    name = "nonnegative"
    convex = False
    bounds_all = True
    proof: ClassVar[Mapping[str, ArraySpec]] = {"dual_blocks": ArraySpec("U", "bkk")}

    def program(self, problem: TimeProblem) -> NonnegativeProgram:
        program: NonnegativeProgram = super().program(problem)
        return replace(program, bounded=problem.participation.random)

    def program_of_gram(
        self,
        gram: Array,
        *,
        participation: Any,
        structure: TimeStructure,
        target: Any = None,
        **_: Any,
    ) -> NonnegativeProgram:
        """The program of a Gram matrix; random participation needs a privacy target."""
        program = temporal_program(gram=gram, participation=participation)
        return NonnegativeProgram(
            gram=program.gram,
            participation=participation,
            structure=structure,
            target=required_target(target) if participation.random else None,
        )

    def afresh(self, program: NonnegativeProgram, *, seed: int | None = None) -> NonnegativeProgram:
        return replace(program, seed=seed, accounts={})

    def hurried(self, program: NonnegativeProgram, *, seconds: float) -> NonnegativeProgram:
        """An account that is known already takes no time."""
        return replace(program, known=True) if seconds <= 0 else program

    def searched(self, program: NonnegativeProgram) -> str:
        return BEST_FOUND

    def solve(self, program: NonnegativeProgram, *, monitor: Monitor) -> Answer:
        if (optimum := _unsigned_optimum(program, monitor)) is not None:
            return optimum
        from noisedesign.families.amplified import solver

        searching, needed = monitor, program.account_seconds
        if monitor.time_limit is not None:
            rest = max(min(needed, monitor.remaining / 2), 0.0)
            searching = replace(monitor, time_limit=monitor.time_limit - rest)
        if monitor.remaining < 2 * needed:
            program = self.hurried(program, seconds=0.0)
        found = solver.solve(program, monitor=searching)
        monitor.tell("the account of it")
        noise = Noise.of_strategy(program.unit(found.form))
        proof: Arrays = {}
        if program.bounded and not program.known:
            monitor.tell("a bound")
            own = Monitor(gap=monitor.gap, time_limit=monitor.time_left)
            free: Any = family_at("time", "dense")
            proof = free.multipliers(program.fixed, monitor=own)
        return Answer(
            stop=Stop.TIME_LIMIT if program.known else found.stop,
            noises=[noise],
            proof=proof,
            message=found.message,
            evaluations=found.evaluations,
        )

    def model(self, program: NonnegativeProgram, form: Form) -> Model:
        raise not_convex(
            "structure.nonnegative" if program.target is None else "participation.kind",
            "C without negative entries" if program.target is None else "random participation",
        )

    def bound(self, program: NonnegativeProgram, proof: Arrays, **_: Any) -> ProvedBound:
        """A bound on linear mechanisms of every kind, under the same participation."""
        if program.target is None:
            workload = GramWorkload(matrix=program.gram)
            value = lower_bound_of_unrestricted_optimum(workload, program.participation)
            return ProvedBound(value, 0.0)
        if proof:
            even = DualPoint(blocks=leveled(_dual(program, proof).blocks))
            prices, fixed = even.blocks[:, 0, 0], proved_bound(program.fixed, even)
        else:
            prices, fixed = np.ones(program.participation.stride), program.uniform_bound
        eased = relief(prices, participation=program.participation, target=program.target)
        return ProvedBound(fixed.value / eased, fixed.rounding)

    def judge(
        self, program: NonnegativeProgram, noise: Noise, proof: Arrays, *, bound: float
    ) -> Certificate:
        strategy = noise.dense_strategy
        judged = judged_strategy(program, strategy, bound=bound)
        if program.target is None:
            return judged
        try:
            account = program.account(strategy)
        except InputError:  # negative entries, or no numbers: no bound
            return replace(judged, sensitivity_squared=float("inf"))
        return replace(
            judged,
            sensitivity_squared=equivalent_sensitivity(account.epsilon, program.target),
            sensitivity_kind=f"amplified ({account.which})",
            account=account,
            theorem=DRAWN.number,
        )

    def rigorous_judge(self, program: NonnegativeProgram, noise: Noise, proof: Arrays) -> Judged:
        """Judge the objective alone under random participation, by no account."""
        strategy = noise.dense_strategy
        if not (strategy >= 0).all():
            raise NotProvedError("C has negative entries")
        if program.target is None:
            return judge_strategy(program, strategy)
        return replace(judge_strategy(program.fixed, strategy), sensitivity_squared=math.inf)

    def rigorous_bound(
        self,
        program: NonnegativeProgram,
        proof: Arrays,
        *,
        judged: Judged | None = None,
        enough: float = 0.0,
        **_: Any,
    ) -> Interval:
        """The bound of uniform multipliers, as :meth:`bound`, on strategies of every structure."""
        if program.target is not None:
            raise NotProvedError(RANDOM)
        return rigorous_uniform_bound(program, judged=judged, enough=enough)

    def prices(self, problem: TimeProblem, noise: Noise, proof: Arrays) -> dict[str, float]:
        """Under random participation the one budget is that of every record, at the target."""
        if problem.participation.random:
            return {EVERY_RECORD: 1.0}
        if problem.structure.kind not in ("dense", "banded"):
            return super().prices(problem, noise, proof)
        strategy = noise.dense_strategy
        return binding_prices(strategy.T @ strategy, problem.participation, slack=SEARCHED_SLACK)

    def fixed_bound(self, program: NonnegativeProgram, proof: Arrays) -> float | None:
        if program.target is None:
            return None
        if not proof:
            return program.uniform_bound.value
        return proved_bound(program.fixed, _dual(program, proof)).value

    def rigorous_fixed_bound(
        self, program: NonnegativeProgram, proof: Arrays, *, enough: float
    ) -> Interval | None:
        if program.target is None:
            return None
        return disjoint_bound(program.fixed, _dual(program, proof), enough=enough)

    def departure(self, program: NonnegativeProgram, noise: Noise, proof: Arrays) -> float:
        strategy, structure = noise.dense_strategy, program.structure
        found = largest_share(strategy, strategy < 0)
        if structure.kind == "banded":
            steps = np.arange(program.size)
            below = np.subtract.outer(steps, steps) >= structure.bands
            found = max(found, largest_share(strategy, below))
        elif structure.kind != "dense":
            inner = ToeplitzProgram(
                gram=program.gram, participation=program.participation, structure=structure
            )
            found = max(found, family_at("time", structure.kind).departure(inner, noise, proof))
        return found

    def independent(self, program: NonnegativeProgram) -> Noise:
        form = DenseStrategy(strategy=np.eye(program.size))
        return Noise.of_strategy(program.unit(form))

    def independent_error(self, problem: TimeProblem) -> float:
        if not problem.participation.random:
            return super().independent_error(problem)
        unit = self.independent(self.program(problem)).dense_strategy
        return float((np.diagonal(problem.gram) / np.square(np.diagonal(unit))).sum())

    def relaxed(self, problem: TimeProblem) -> TimeProblem | None:
        """None under random participation, where the one bound is on all linear mechanisms."""
        return None if problem.participation.random else super().relaxed(problem)

    def sizes(self, problem: TimeProblem) -> dict[str, int]:
        if not problem.participation.random:
            return {}
        steps = problem.participation
        return {"b": steps.stride, "k": steps.largest_size}


def _unsigned_optimum(program: NonnegativeProgram, monitor: Monitor) -> Answer | None:
    """The optimum of all C under fixed participation, where it has no negative entries."""
    steps = program.participation
    if program.target is not None or program.structure.kind != "dense" or not steps.disjoint:
        return None
    own = Monitor(gap=monitor.gap, time_limit=monitor.time_left)
    answer = family_at("time", "dense").solve(program.fixed, monitor=own)
    noises = [noise for noise in answer.noises if noise.dense_strategy.min() >= 0]
    return replace(answer, noises=noises, proof={}) if noises else None


def _dual(program: NonnegativeProgram, proof: Arrays) -> DualPoint:
    """Multipliers of the convex program for fixed participation; uniform ones without any."""
    if "dual_blocks" in proof:
        return DualPoint(blocks=proof["dual_blocks"])
    return uniform_dual(program.fixed)


FAMILY = Nonnegative()
