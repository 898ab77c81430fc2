"""The one verb: a problem in, a certified design out."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from types import NoneType
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from noisedesign.base import checks as _checks, settings
from noisedesign.base.checks import InputError
from noisedesign.base.monitor import Checkpoint, Monitor, ProgressCallback, Stop
from noisedesign.base.shown import Shown
from noisedesign.certify.certificate import Certificate, ProvedBound
from noisedesign.design.backends import TOLERANCE_PER_GAP, Backend, How, Options, get_backend
from noisedesign.design.design import Design, Provenance
from noisedesign.families.family import (
    LOCAL,
    STATISTICAL,
    Answer,
    AnyFamily,
    Arrays,
    Cappable,
    Costly,
    Optioned,
    Remarked,
    Sampled,
    certified,
    family_of,
    without_multipliers,
)
from noisedesign.forms import Noise
from noisedesign.problem.default_cap import TIMES, FreeNoiseError, capped, larger
from noisedesign.problem.problem import Problem, endless_of, problem_of

if TYPE_CHECKING:
    from noisedesign.conic.data import Errors
    from noisedesign.design.unbounded import UnboundedDesign
    from noisedesign.problem.unbounded import UnboundedProblem

OPTIMAL, INACCURATE, FAILED = "optimal", "inaccurate", "failed"
INTERRUPTED = Stop.INTERRUPTED.value

STAND_IN = "ldp"  # the method of a design that takes the place of one that was not found


@dataclass(frozen=True)
class DefaultCap:
    """The cap on variances under which a problem was solved whose H is singular.

    Attributes:
        times: the largest variance allowed to a node, over that of independent noise.
        cost: by how much the objective exceeds a lower bound without the cap, relative.
        beside: of which noise that bound is.
    """

    times: float
    cost: float
    beside: str

    def __str__(self) -> str:
        said = f"<= {self.times:g} times independent, by default"
        if not math.isfinite(self.cost):
            return said
        # Two digits are printed, and are not to be rounded below what was found.
        unit = 10.0 ** (math.floor(math.log10(max(self.cost, 1e-6))) - 1)
        cost = 100 * unit * math.ceil(self.cost / unit * (1 - settings.sqrt_eps()))
        return f"{said}: costs at most {cost:.2g} % over {self.beside}"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Solution(Shown):
    """The outcome of a solve.

    Attributes:
        problem: what was asked.
        backend: who solved it.
        status: "optimal" (certified to the gap asked for), "inaccurate" (certified, but to a larger
            gap), "local-optimum" (the best a search in a nonconvex structure found; the gap is that
            to the optimum without a structure), "best-found" (the same under random participation),
            "statistical" (certified to the gap asked for, with the confidence of the certificate),
            "time-limit" or "interrupted" (stopped; the best certified answer so far), or "failed"
            (no usable answer).
        design: the answer; None where there is none.
        remedy: what to do about anything but "optimal", and how large noise is where W is singular
            and little bounds it.
        seconds: of the whole solve.
        build_seconds: the backend's own part of them, to state the problem.
        solve_seconds: the backend's own part of them, to solve it.
        evaluations: of the objective, or iterations of a conic solver.
        errors: the six DIMACS errors of a conic model (:mod:`noisedesign.conic.data`).
        default_cap: the cap that nobody stated, and what it costs, where H is singular; or None.

    Examples:
        >>> import noisedesign as nd
        >>> solution = nd.solve(nd.TimeProblem.prefix(participation=nd.participation.single(2)))
        >>> solution.status, solution.feasible, solution.certificate.gap < 1e-6
        ('optimal', True, True)
    """

    problem: Problem
    backend: str
    status: str
    design: Design | None
    remedy: str
    seconds: float
    build_seconds: float
    solve_seconds: float
    evaluations: int
    errors: Errors | None = None
    default_cap: DefaultCap | None = None

    def _title(self) -> str:
        return f"Solution of {self.problem.name!r}"

    def _facts(self) -> dict[str, object]:
        shown = "objective", "lower bound", "gap", "confidence", "over LDP", "feasible", "protects"
        facts = {} if self.design is None else self.design._facts()
        return {
            "status": self.status,
            **{name: facts[name] for name in shown if name in facts},
            "largest variance": None if self.default_cap is None else str(self.default_cap),
            "backend": self.backend,
            "evaluations": self.evaluations,
            "seconds": self.seconds,
            "remedy": self.remedy,
        }

    @property
    def certificate(self) -> Certificate | None:
        """The certificate of the design; None where there is none."""
        return None if self.design is None else self.design.certificate

    @property
    def feasible(self) -> bool:
        """Whether there is a design that keeps budget, cap and floor, with no tolerance."""
        return self.certificate is not None and self.certificate.feasible

    @property
    def found(self) -> bool:
        """Whether the design is an answer.

        Where a solver is stopped with nothing in its hands, the design is independent noise, for
        which nobody had to look."""
        return self.design is not None and (
            self.status == OPTIMAL or self.design.provenance.method != STAND_IN
        )


@overload
def solve(problem: UnboundedProblem) -> UnboundedDesign: ...


@overload
def solve(
    problem: Problem,
    *,
    backend: str = ...,
    gap: float | None = ...,
    time_limit: float | None = ...,
    formulation: str | None = ...,
    progress: ProgressCallback | None = ...,
    isolate: bool | None = ...,
    device: str = ...,
    checkpoint: Checkpoint[Any] | None = ...,
    start: Any = ...,
) -> Solution: ...


def solve(
    problem: Problem | UnboundedProblem,
    *,
    backend: str = "native",
    gap: float | None = None,
    time_limit: float | None = None,
    formulation: str | None = None,
    progress: ProgressCallback | None = None,
    isolate: bool | None = None,
    device: str = "cpu",
    checkpoint: Checkpoint[Any] | None = None,
    start: Any = None,
) -> Solution | UnboundedDesign:
    """Design the noise of ``problem`` and certify it.

    Args:
        problem: a :class:`SpaceProblem`, :class:`TimeProblem` or :class:`SpaceTimeProblem`, or what
            has one: a loaded file or a design, whose problem is solved. An
            :class:`UnboundedProblem` takes no other argument.
        backend: "native", "scs", "clarabel", "mosek", "cvxopt" or "sdpa"; what is not convex,
            Toeplitz strategies and products of time and space, is for "native" alone. Other
            distributions may add backends.
        gap: relative duality gap to certify, default 1e-6, or 1e-5 against observers and 1e-2
            against those of more than 64 nodes. Conic solvers are asked for an accuracy to match
            only where it is given.
        time_limit: seconds, certificate included; the best certified answer by then is returned.
            There is none where the first answer takes longer, which large dense problems tell at
            once.
        formulation: of the conic model: "balanced", the default, "compact", "covariance",
            "paper" or, of an SCS with spectral cones, "nuclear"; of noise with a structure or
            against observers there is one.
        progress: called with the bounds of every iteration of the native backend, and with the
            last of them and what is at work as a solve begins, is certified and ends.
        isolate: run a conic solver in its own process, where it can be stopped; default: only
            with a time limit.
        device: where the native solvers of problems without a structure compute: "cpu", "cuda" or
            "cuda:N".
        checkpoint: where the native solvers of problems without limits keep their multipliers, and
            what they go on from (:class:`noisedesign.results.CheckpointFile`).
        start: where the same solvers begin without a checkpoint: a design of a problem of the same
            size and participation, or a ``DualPoint``. It changes evaluations, not the answer.

    Returns:
        The design, what is certified of it and how it was found; of an :class:`UnboundedProblem`
        its :class:`UnboundedDesign`, which is no optimum: its ``ratio`` says how far it is from
        those who know the horizon.

    Raises:
        InputError: a backend that is unknown, not installed, unlicensed or cannot take the
            problem; gap or time_limit <= 0; a singular W (or H) whose noise nothing bounds, where
            ``max_variance="none"`` refuses the cap that else is told in ``default_cap``; a device
            that is not there; a checkpoint of another problem, or a damaged one; a start of
            another size, or for a solver that takes none.

    Examples:
        Two nodes that keep 3/4 of their own model: the eigenvalues of W are 1 and 1/2, and the
        optimum is (1 + 1/2)^2 / 2.

        >>> import numpy as np
        >>> import noisedesign as nd
        >>> W = np.array([[0.75, 0.25], [0.25, 0.75]])
        >>> solution = nd.solve(nd.SpaceProblem(mixing=W))
        >>> solution.status
        'optimal'
        >>> print(f"{solution.design.objective:.4f}")
        1.1250
        >>> print(f"{nd.solve(nd.UnboundedProblem(buffers=4)).ratio:.1f}")
        1.5
    """
    asked: dict[str, Any] = {
        "backend": backend,
        "gap": gap,
        "formulation": formulation,
        "progress": progress,
        "isolate": isolate,
        "device": device,
        "checkpoint": checkpoint,
        "start": start,
    }
    if (endless := endless_of(problem)) is not None:
        from noisedesign.design.buffer_search import solve_unbounded

        default: Any = solve.__kwdefaults__
        said = {name: asked[name] for name in ("backend", "device") if asked[name] != default[name]}
        return solve_unbounded(
            endless, **asked | {"backend": None, "device": None, "time_limit": time_limit} | said
        )
    started, problem = time.perf_counter(), problem_of(problem, sparse=True)
    try:
        return _solve(problem, time_limit=time_limit, **asked)
    except FreeNoiseError:
        if not getattr(problem, "default_cap", False) or problem.max_variance is not None:
            raise
    ends = None if time_limit is None else started + time_limit
    return _solve_capped(problem, asked, started=started, ends=ends)


def _solve_capped(
    problem: Problem, asked: dict[str, Any], *, started: float, ends: float | None
) -> Solution:
    """Solve a problem whose H is singular under the least of some caps that costs next to nothing,
    or the widest of them."""

    def left() -> float | None:
        return None if ends is None else max(ends - time.perf_counter(), 1e-3)

    best: Solution | None = None
    wider: float | None = TIMES[0]
    while wider is not None:
        found = _solve(capped(problem, wider), time_limit=left(), **asked)
        stopped = found.status in (INTERRUPTED, Stop.TIME_LIMIT.value) or found.design is None
        cap = DefaultCap(wider, math.inf, "") if stopped else _priced(found, wider, left())
        if best is None or _better(found, best):  # one that was stopped may be worse than before
            best = replace(found, default_cap=cap)
        wider = None if stopped else larger(wider, cap.cost)
    assert best is not None
    return replace(best, seconds=time.perf_counter() - started)


def _better(found: Solution, other: Solution) -> bool:
    """Whether one has a design of less error."""
    if found.design is None or other.design is None:
        return found.design is not None
    return found.design.objective < other.design.objective


def _priced(solution: Solution, times: float, time_limit: float | None) -> DefaultCap:
    """Bound what the cap of a solution costs."""
    family, design = family_of(solution.problem), solution.design
    assert design is not None
    if not isinstance(family, Cappable):
        return DefaultCap(times, math.inf, "")
    monitor = Monitor(gap=settings.DEFAULT_GAP, time_limit=time_limit)
    program = family.program(solution.problem)
    free = family.without_cap(program, design.noise, design.proof, monitor=monitor)
    cost = max(design.objective / free.bound - 1, 0.0) if free.bound > 0 else math.inf
    return DefaultCap(times, cost, free.beside)


def _solve(
    problem: Problem,
    *,
    backend: str,
    gap: float | None,
    time_limit: float | None,
    formulation: str | None,
    progress: ProgressCallback | None,
    isolate: bool | None,
    device: str,
    checkpoint: Checkpoint[Any] | None,
    start: Any,
) -> Solution:
    """Solve a problem as it stands; FreeNoiseError where nothing bounds its noise."""
    started = time.perf_counter()
    family = family_of(problem)
    if gap is not None:
        gap = _checks.real(gap, field="gap", low=0, high=1)
    _checks.instance(isolate, (bool, NoneType), field="isolate", expected="True, False or None")
    if time_limit is not None:
        time_limit = _checks.real(time_limit, field="time_limit", low=0)
    if start is not None:
        from noisedesign.design.warm_start import start_of

        start = start_of(start)
    options = Options(device=device, checkpoint=checkpoint, start=start)
    solver = get_backend(backend)
    least = 0.0 if time_limit is None else solver.least_seconds(family, problem)

    def outcome(status: str, design: Design | None, remedy: str, answer: Answer) -> Solution:
        return Solution(
            problem=problem,
            backend=solver.name,
            status=status,
            design=design,
            remedy=remedy,
            seconds=time.perf_counter() - started,
            build_seconds=answer.build_seconds,
            solve_seconds=answer.solve_seconds,
            evaluations=answer.evaluations,
            errors=answer.measure(),
        )

    if time_limit is not None and least > time_limit + max(2.0, time_limit / 10):
        remedy = (
            "The first answer to a problem of this size and its certificate take about "
            f"{least:.0f} seconds here. Allow more time."
        )
        return outcome(Stop.TIME_LIMIT.value, None, remedy, Answer(stop=Stop.TIME_LIMIT))
    program = family.program(problem)
    formulation = solver.check(family, program, formulation)
    solver.check_options(family, program, options)
    if (asked := gap) is None:
        asked = family.default_gap(program) if isinstance(family, Costly) else family.gap
    monitor = Monitor(
        gap=asked,
        tolerance=None if gap is None else asked * TOLERANCE_PER_GAP,
        time_limit=None if time_limit is None else max(time_limit - least, min(time_limit, 1e-3)),
        progress=progress,
        checkpoint=checkpoint,
        start=family.start(program, start) if isinstance(family, Optioned) else None,
        device=device,
    )
    monitor.tell("searching")
    answer = solver.answer(family, program, How(monitor, formulation, isolate))
    if isinstance(family, Costly):
        program = family.hurried(program, seconds=monitor.remaining)
    monitor.tell("certifying it")
    verdict = _Verdict(family, program, answer.proof, problem, monitor)
    with solver.blamed():
        best, method = verdict.best(answer.noises), "optimal"
    if best is None:
        wanted = answer.stop in (Stop.TIME_LIMIT, Stop.INTERRUPTED)
    else:
        reached, rounded = best[1], 1 + settings.sqrt_eps()
        wanted = reached.gap > asked and (
            reached.objective > rounded * family.independent_error(problem)
        )
    if wanted and (independent := verdict.independent()) is not None:
        best, method = independent, STAND_IN
    monitor.tell("certified")
    searched = family.searched(program) if isinstance(family, Sampled) else LOCAL
    status, remedy = _status(best and best[1], method, family, searched, answer, solver, asked)
    design = None
    if best is not None:
        noise, certificate = best
        told = family.remark(program, noise) if isinstance(family, Remarked) else ""
        remarks = (remedy, told, _beside_fixed(certificate))
        remedy = " ".join(filter(None, remarks))
        provenance = Provenance(
            method=method,
            backend=solver.name,
            status=status,
            build_seconds=answer.build_seconds,
            solve_seconds=answer.solve_seconds,
            evaluations=answer.evaluations,
            versions=solver.versions() | options.versions,
            history=tuple(monitor.history),
        )
        design = Design(
            problem=problem,
            noise=noise,
            certificate=certificate,
            provenance=provenance,
            proof=verdict.proof,
            relaxed_proof=verdict.relaxed,
            trust=family.trust,
            local=not family.convex and searched is not None,
        )
    return outcome(status, design, remedy, answer)


def _beside_fixed(certificate: Certificate) -> str:
    """Say in a sentence where random participation is worth less than negative entries."""
    if (relative := certificate.relative_to_fixed) is None or relative <= 1:
        return ""
    return (
        f"At this target chance gains less than negative entries in C do: the optimum for fixed "
        f"participation has {1 / relative:.2f} of its error, and its noise meets the target "
        "however records take part, at random too."
    )


class _Verdict:
    """The judgement of a family on one way after another to make an answer feasible."""

    def __init__(
        self, family: AnyFamily, program: object, proof: Arrays, problem: Problem, monitor: Monitor
    ) -> None:
        self.family, self.program, self.proof = family, program, proof
        self.problem, self.monitor, self.gap = problem, monitor, monitor.gap
        self.everywhere: float | None = None
        self.relaxed: Arrays = {}
        self.bound: ProvedBound | None = None

    def best(self, noises: Iterable[Noise]) -> tuple[Noise, Certificate] | None:
        """The noise of least error, and its certificate; None where nothing is feasible."""
        best: tuple[Noise, Certificate] | None = None
        for noise in noises:
            if self.bound is None:  # once: the same for all of them
                self.bound = self._bound(noise)
                self.everywhere, self.relaxed = self._of_every_structure(self.bound)
            found = certified(
                self.family,
                self.program,
                noise,
                self.proof,
                bound=self.bound,
                everywhere=self.everywhere,
            )
            if not found.feasible or not np.isfinite(found.objective):
                continue
            if best is None or found.objective < best[1].objective:
                best = noise, found
            if best[1].gap <= self.gap:
                break
        return best

    def independent(self) -> tuple[Noise, Certificate] | None:
        """Independent noise, and its certificate; None where it is not feasible."""
        before, specs = self.proof, self.family.proof
        self.proof = {name: a for name, a in before.items() if specs[name].multiplier}
        noise = self.family.independent(self.program)
        # DECOR has the same variance at every node, which uneven budgets do not.
        if self.family.departure(self.program, noise, {}) > settings.STRUCTURE_TOLERANCE:
            return None
        found = self.best([noise])
        if found is None:
            self.proof = before
        return found

    def _of_every_structure(self, own: ProvedBound) -> tuple[float | None, Arrays]:
        """Bound noise of every structure in the time left; None where there is no other."""
        if (wider := self.family.relaxed(self.problem)) is None:
            return None, {}
        if self.monitor.expired and own.value > 0:
            return 0.0, {}
        self.monitor.tell("bounding noise of every structure")
        outer = family_of(wider)
        try:
            program = outer.program(wider)
            left = Monitor(gap=self.gap, time_limit=self.monitor.time_left)
            if isinstance(outer, Optioned):
                proof = outer.multipliers(program, monitor=left)
            else:
                proof = outer.solve(program, monitor=left).proof
        except InputError:  # no bound is known but that of the answer itself
            return 0.0, {}
        return outer.bound(program, proof).value if proof else 0.0, proof

    def _bound(self, noise: Noise) -> ProvedBound:
        """Bound by the proof, or by what is known without multipliers where that proves nothing."""
        negligible = settings.NEGLIGIBLE_PER_GAP * self.gap
        if all(np.isfinite(array).all() for array in self.proof.values()):
            proved = self.family.bound(self.program, self.proof, noise=noise, negligible=negligible)
            if proved.value > 0:
                return proved
        self.proof = without_multipliers(self.family, self.proof)
        return self.family.bound(self.program, self.proof, noise=noise, negligible=negligible)


def _status(
    certificate: Certificate | None,
    method: str,
    family: AnyFamily,
    searched: str | None,
    answer: Answer,
    backend: Backend,
    gap: float,
) -> tuple[str, str]:
    """Return our verdict, from the certificate and not from the solver, and what to do about it."""
    if certificate is None:
        why = answer.message or "its answer could not be made feasible"
        others = [*backend.remedies]
        # Where there is nothing to repair, no gap is loose enough.
        if answer.noises != ():
            others.append("a looser --gap")
        return FAILED, f"{why}. Try {', or '.join(others)}." if others else f"{why}."
    if certificate.gap <= gap:
        return (OPTIMAL if certificate.confidence is None else STATISTICAL), ""
    reached = f"certified gap {certificate.gap:.2g}, asked {gap:.2g}"
    if method == STAND_IN:
        reached = f"{answer.message or 'nothing was found'}; independent noise has a {reached}"
    if answer.stop is Stop.TIME_LIMIT:
        return Stop.TIME_LIMIT.value, f"{reached}. Allow more time."
    if answer.stop is Stop.INTERRUPTED:
        return Stop.INTERRUPTED.value, f"{reached}. Run it again to the end."
    if not family.convex and searched is not None:
        return searched, ""
    return INACCURATE, f"{reached}. {family.short or backend.short}"
