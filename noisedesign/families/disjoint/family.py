"""(P) itself: noise without a structure, budgets on patterns that share no coordinate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError, one_of
from noisedesign.base.enclosures import Interval
from noisedesign.base.machine import seconds_of_product
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.certify import repair, rigorous
from noisedesign.certify.certificate import (
    Certificate,
    ProvedBound,
    judge_covariance,
    judge_strategy,
    proved_bound,
    repaired_blocks,
    repaired_dual,
)
from noisedesign.certify.program import DualPoint, Program, uniform_dual
from noisedesign.certify.rigorous import Judged
from noisedesign.families.disjoint.program import (
    Found,
    arrays_of,
    dual_of,
    independent_gram,
    may_diverge,
    program_of,
    unlimited,
)
from noisedesign.families.family import (
    Answer,
    Arrays,
    ArraySpec,
    Cappable,
    Costly,
    Family,
    Form,
    Model,
    Modelled,
    Optioned,
    Remarked,
    Served,
    Uncapped,
    Weighable,
    named_shares,
    pattern_name,
    work_of_gram,
)
from noisedesign.families.space_time import SpaceTimeProgram
from noisedesign.forms import DenseStrategy, Noise
from noisedesign.problem.problem import (
    SpaceProblem,
    SpaceTimeProblem,
    TimeProblem,
    check_cap_over_time,
)
from noisedesign.system.workloads import ErrorMixture, Workload
from noisedesign.system.workloads.error import measures_of
from noisedesign.system.workloads.workload import prefix_gram

if TYPE_CHECKING:
    from noisedesign.conic.data import Point
    from noisedesign.conic.program import ModelSize


D = TypeVar("D", SpaceProblem | TimeProblem, SpaceTimeProblem)

PRODUCTS = 40.0
"""Products of two matrices that take as long as the first answer and its verdict; 28 to 38 were
counted. More leave the search less of a time limit."""


class Disjoint(
    Family[D, Program],
    Cappable[Program],
    Costly[D, Program],
    Modelled[Program],
    Optioned[Program],
    Remarked[D, Program],
    Served[D, Program],
    Weighable,
):
    """A node is a pattern of its own in space; in time the patterns of (k, b) participation are
    the residue classes of the steps."""

    name = "disjoint"
    structured = False
    formulations = ("balanced", "compact", "covariance", "paper", "nuclear")
    proof: ClassVar[Mapping[str, ArraySpec]] = {
        "dual_weights": ArraySpec("v", "i"),
        "dual_blocks": ArraySpec("U", "bkk"),
        "dual_cap": ArraySpec("w", "m"),
        "dual_floor": ArraySpec("u", "m"),
    }

    def program(self, problem: D) -> Program:
        return program_of(problem)

    def work(self, problem: D) -> float:
        return work_of_gram(problem) if problem.axes == "space" else 0.0

    def least_seconds(self, problem: D) -> float:
        return PRODUCTS * seconds_of_product(self.sizes(problem)["m"])

    def central(self, problem: D) -> Program | None:
        """The program in time: the average has sensitivity 1 / n, and all n nodes hold the same
        model, so H is that of one noise of 1 / n at every node; of all iterates prefix / n. Without
        a graph there is one model, and its workload is the server's."""
        if problem.axes != "time":
            return None
        program, mixing = program_of(problem), problem.mixing
        if mixing is None:
            return program
        error, n = problem.error, len(mixing)
        gram = prefix_gram(horizon=program.size) / n
        if error is not None and not error.plain:
            held = [replace(one, push_sum_weights=None) for one in measures_of(error)]
            served: Any = held[0]
            if isinstance(error, ErrorMixture):
                served = replace(error, measures=tuple(held))
            workload = Workload.of(np.full((n, n), 1 / n), horizon=program.size, error=served)
            gram = workload.time_gram(np.full((n, n), n**-2.0))
        return replace(program, gram=gram, workload=None)

    def solve(self, program: Program, *, monitor: Monitor) -> Answer:
        diverging = may_diverge(program)
        if diverging:  # a looser answer would not tell whether the optimum is attained
            monitor.gap = min(monitor.gap, settings.DEFAULT_GAP)
        found = self._native(program, monitor)
        if diverging:
            self._refuse(program, found, time_limit=monitor.time_left)
        return self.answer(program, found.denormalized(program))

    def multipliers(self, program: Program, *, monitor: Monitor) -> Arrays:
        found = self._native(program, monitor)
        return {} if found.dual is None else arrays_of(program, found.dual.denormalized(program))

    def _native(self, program: Program, monitor: Monitor) -> Found:
        from noisedesign.families.disjoint import solver

        return solver.solve(program.normalized(), monitor=monitor)

    def without_options(self, program: Program) -> str | None:
        return "the solvers of problems with limits" if program.limited else None

    def attained(self, program: Program, *, time_limit: float | None) -> None:
        if not may_diverge(program):
            return
        probe = Monitor(gap=settings.DEFAULT_GAP, time_limit=time_limit)
        found = self._native(program, probe)
        if found.stop is Stop.INTERRUPTED:
            raise KeyboardInterrupt
        self._refuse(program, found, time_limit=probe.time_left)

    def _refuse(self, program: Program, found: Found, *, time_limit: float | None) -> None:
        """Refuse a singular H whose noise ``found`` shows to be unbounded."""
        from noisedesign.families.disjoint import attainment

        attainment.refuse_divergent(program, found, time_limit=time_limit)

    def without_cap(
        self, program: Program, noise: Noise, proof: Arrays, *, monitor: Monitor
    ) -> Uncapped:
        """The bound of multipliers without the cap, or what blends with independent noise prove."""
        assert program.cap is not None
        times = float((program.cap * program.coordinate_budget).min())
        bound = (1 - 1 / times) * self.bound(program, proof).value
        free = replace(program, cap=None)
        if (dual := self._native(free, monitor).dual) is not None:
            bound = max(bound, proved_bound(free, dual.denormalized(free)).value)
        return Uncapped(bound, "the infimum of all designs")

    def remark(self, program: Program, noise: Noise) -> str:
        if not unlimited(program):
            return ""
        from noisedesign.families.disjoint import attainment

        return attainment.remark(program, noise)

    def start(self, program: Program, start: Any) -> Array | None:
        return None if start is None else np.asarray(start.blocks(program))

    def model(self, program: Program, form: Form) -> Model:
        from noisedesign.families.disjoint import model

        allowed = self.formulations if form.scaled else model.STATED
        chosen = one_of(form.formulation or allowed[0], field="formulation", allowed=allowed)
        if (reason := model.unable(program, chosen)) is not None:
            raise InputError(
                "formulation",
                expected="one that holds this problem",
                got=f"{chosen}, which cannot hold {reason}",
            )
        unit = program.normalized() if form.scaled else program
        made = model.build(unit, formulation=chosen, parts=form.parts, scaled=form.scaled)

        def read(point: Point) -> Answer:
            found = Found(stop=Stop.SOLVED, gram=made.gram(point), dual=made.dual(point))
            return self.answer(program, found.denormalized(program) if form.scaled else found)

        return Model(conic=made.conic, read=read)

    def unable(self, program: Program, formulation: str) -> str | None:
        from noisedesign.families.disjoint import model

        return model.unable(program, formulation)

    def model_size(
        self, program: Program, form: Form, *, size: int | None = None, rank: int | None = None
    ) -> ModelSize:
        from noisedesign.families.disjoint import model

        if rank is None:
            rank = 0 if program.limited else int(np.linalg.matrix_rank(program.factor))
        return model.model_size(
            program.size if size is None else size,
            epochs=program.participation.epochs,
            rank=rank,
            formulation=form.formulation or self.formulations[0],
            limited=program.limited,
            parts=form.parts,
        )

    def bound(
        self, program: Program, proof: Arrays, *, negligible: float = settings.NEGLIGIBLE, **_: Any
    ) -> ProvedBound:
        """The bound of the multipliers; without any, of uniform ones."""
        dual = dual_of(proof)
        if dual is None:
            return proved_bound(program, uniform_dual(program))
        return proved_bound(program, dual, negligible=negligible)

    def judge(self, program: Program, noise: Noise, proof: Arrays, *, bound: float) -> Certificate:
        """Judge a covariance R, or a strategy C."""
        if program.axes == "space":
            return judge_covariance(program, noise.covariance, bound=bound)
        strategy = noise.dense_strategy
        judged = judge_strategy(program, strategy, bound=bound, root=_root(program))
        if program.cap is None:
            return judged
        variance = np.square(np.linalg.inv(strategy)).sum(axis=1)
        return replace(judged, variance_ratio=float((variance / program.cap).max()))

    def rigorous_judge(self, program: Program, noise: Noise, proof: Arrays) -> Judged:
        if program.axes == "space":
            return rigorous.judge_covariance(program, noise.covariance)
        return rigorous.judge_strategy(
            program,
            noise.dense_strategy,
            exact_factor=program.exact_factor,
            known=rigorous.known_factor(program),
            root=_root(program),
            cap=program.cap,
        )

    def rigorous_release(self, program: Program, noise: Noise) -> Judged:
        if program.axes == "space":
            return rigorous.judge_release(program, noise.covariance)
        return rigorous.judge_strategy(program, noise.dense_strategy, root=_root(program))

    def rigorous_bound(
        self, program: Program, proof: Arrays, *, judged: Judged | None = None, **by: Any
    ) -> Interval:
        by.pop("noise", None)
        dual = dual_of(proof) or uniform_dual(program)
        return rigorous.disjoint_bound(program, dual, judged=judged, **by)

    def prices(self, problem: D, noise: Noise, proof: Arrays) -> dict[str, float]:
        """v_i tau_i over their sum, times what is gained before limits are paid, over the bound."""
        dual, times = dual_of(proof), 1.0
        if dual is None:
            return {}
        program = self.program(problem)
        if dual.cap is not None or dual.floor is not None:
            value = proved_bound(program, dual).value
            dual = repaired_dual(program, dual)
            limits = ((program.cap, dual.cap, 1), (program.floor, dual.floor, -1))
            for limit, multiplier, sign in limits:
                if limit is not None and multiplier is not None and value > 0:
                    times += sign * float(limit @ multiplier) / value
        paid = program.budget * repaired_blocks(dual.blocks)[:, 0, 0]
        return self._named_prices(problem, paid, times)

    def weighed(self, proof: Arrays, factors: Array) -> Arrays:
        found = dict(proof)
        for name in {"dual_weights", "dual_blocks"} & set(proof):
            array = proof[name]  # of a full design pattern by pattern, one node after another
            of_each = np.tile(factors, len(array) // len(factors))
            found[name] = array * of_each.reshape(-1, *[1] * (array.ndim - 1))
        return found

    def _named_prices(self, problem: D, paid: Array, times: float) -> dict[str, float]:
        if problem.axes == "space":
            return named_shares(problem.nodes, paid, times)
        patterns = problem.use.patterns
        return named_shares(map(pattern_name, patterns), paid, times)

    def independent(self, program: Program) -> Noise:
        return self.noise(program, independent_gram(program))

    def independent_error(self, problem: D) -> float:
        """tr(H X^-1) of independent noise, squared noise."""
        program = program_of(problem)
        independent = program.coordinate_budget / program.participation.epochs
        return float((program.gram.diagonal() / independent).sum())

    def sizes(self, problem: D) -> dict[str, int]:
        if problem.axes == "space":
            return {"i": len(problem.nodes), "m": len(problem.nodes)}
        scheme = problem.use
        return {"m": scheme.horizon, "b": scheme.stride, "k": scheme.largest_size}

    def noise(self, program: Program, gram: Array) -> Noise:
        """The noise exported from a feasible X."""
        if program.axes == "space":
            return Noise.of_covariance(repair.covariance_of(program, gram))
        return Noise.of_strategy(self._form(program, gram))

    def _form(self, program: Program, gram: Array) -> DenseStrategy:
        """C of a feasible X, at the budgets."""
        if program.unit:
            return DenseStrategy(strategy=repair.strategy_of(program, gram))
        root = np.sqrt(program.coordinate_budget)
        strategy = repair.strategy_of(program, gram / root / root[:, None])
        return DenseStrategy(strategy=strategy * root)

    def answer(self, program: Program, found: Found) -> Answer:
        """The answer of X and multipliers, as noise and as arrays of a design file."""
        dual = found.dual
        return Answer(
            stop=found.stop,
            noises=() if found.gram is None else self._noises(program, found.gram, dual),
            proof={} if dual is None else arrays_of(program, dual),
            message=found.message,
            solve_seconds=found.solve_seconds,
            evaluations=found.evaluations,
        )

    def _noises(self, program: Program, gram: Array, dual: DualPoint | None) -> Iterator[Noise]:
        """X made feasible, first as it costs least and then as thoroughly as it can be."""
        for thorough in (False, True):
            feasible = repair.feasible_gram(program, gram, dual=dual, thorough=thorough)
            if feasible is None:
                continue
            try:
                noise = self.noise(program, feasible)
            except np.linalg.LinAlgError:
                continue
            del feasible  # freed early: peak memory
            yield noise


def _root(program: Program) -> Array | None:
    """Square roots of the budgets, where they are not 1."""
    return None if program.unit else np.sqrt(program.coordinate_budget)


class Full(Disjoint[SpaceTimeProblem]):
    """C, shape (nT, nT), lower triangular, at the budgets: noise of a step needs draws of no later
    one. At unit budgets the sensitivity of C is one number, whatever the node."""

    name = "full"
    structured = True
    proof: ClassVar[Mapping[str, ArraySpec]] = {
        "dual_blocks": ArraySpec("P", "bkk"),
        "dual_cap": ArraySpec("w", "m"),
    }

    def program(self, problem: SpaceTimeProblem) -> Program:
        program = SpaceTimeProgram.of(problem).full_program()
        if program.cap is not None:
            check_cap_over_time(program.cap, 1 / independent_gram(program).diagonal())
        return program

    def least_seconds(self, problem: SpaceTimeProblem) -> float:
        # An iteration on an error of few rows takes no product of the size of all pairs.
        few = SpaceTimeProgram.of(problem).workload.rows() is not None
        return super().least_seconds(problem) * (0.4 if few else 1.0)

    def without_options(self, program: Program) -> str | None:
        return "those of structured and space-time designs"

    def _named_prices(
        self, problem: SpaceTimeProblem, paid: Array, times: float
    ) -> dict[str, float]:
        by_node = paid.reshape(-1, len(problem.nodes)).sum(axis=0)
        return named_shares(problem.nodes, by_node, times)

    def independent_error(self, problem: SpaceTimeProblem) -> float:
        return SpaceTimeProgram.of(problem).independent_objective

    def sizes(self, problem: SpaceTimeProblem) -> dict[str, int]:
        n, steps = len(problem.mixing), problem.participation
        return {"m": n * steps.horizon, "b": n * steps.separation, "k": steps.epochs}

    def noise(self, program: Program, gram: Array) -> Noise:
        return Noise(steps=program.size, strategy=self._form(program, gram), full=True)


FAMILY: Disjoint[SpaceProblem | TimeProblem] = Disjoint()
FULL = Full()
