"""The error of a design under any measure, at its privacy target, beside independent noise.

Objectives of designs are stated at the budgets of their own problems, so that those of noise in
space, in time and in both are of different units. At one privacy target they are not: the noise of
a run of T steps has covariance s^2 K x R, of K = (C^T C)^-1 or I over steps, R or I over nodes and
the standard deviation s that meets the target, and every measure is s^2 tr(H K x R)."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import toeplitz

from noisedesign.base.checks import Array, InputError
from noisedesign.base.shown import Shown
from noisedesign.design.design import design_of
from noisedesign.design.unbounded import UnboundedDesign
from noisedesign.families.family import family_of
from noisedesign.families.modal import bound as of_modes
from noisedesign.files.toml import renamed
from noisedesign.forms import ModalStrategy, Noise
from noisedesign.problem.calibration import calibration_of
from noisedesign.problem.problem import Problem
from noisedesign.system.workloads import WORST, ErrorMeasure, ErrorMixture, Workload

MOST_PAIRS = 50_000  # of node and step, of tables: more take seconds


@dataclass(frozen=True, kw_only=True, repr=False)
class Evaluation(Shown):
    """The error of a design under a measure.

    Attributes:
        of: what is measured.
        error: expected error of one coordinate of the models, squared noise at the target: of sums
            of gradients in the units of ``clip``, and with learning rates, of models. In units of
            the loss where that is measured. Without a target it is at the stated budgets.
        independent: that of independent noise with the same protection.
        noise_stddev: factor on the noise of the design with which it meets the target, not squared.
        horizon: T, the steps of the run.

    Examples:
        >>> import noisedesign as nd
        >>> problem = nd.TimeProblem.prefix(participation=nd.participation.single(2))
        >>> found = nd.evaluate(nd.solve(problem), mixing=[[1.0]])
        >>> print(f"{found.error:.4f} of {found.independent:.4f}")  # the golden ratio squared
        2.6180 of 3.0000
    """

    of: str
    error: float
    independent: float
    noise_stddev: float
    horizon: int

    @property
    def relative(self) -> float:
        """error / independent."""
        return self.error / self.independent

    def _title(self) -> str:
        return f"Error of {self.of}"

    def _facts(self) -> dict[str, object]:
        return {
            "error": self.error,
            "independent noise": self.independent,
            "relative": self.relative,
            "noise stddev": self.noise_stddev,
            "steps": self.horizon,
        }


def evaluate(
    design: Any,
    *,
    error: ErrorMeasure | ErrorMixture | Mapping[str, Any] | None = None,
    mixing: Any = None,
) -> Evaluation:
    """The error of a design under any measure, at the privacy target of its problem.

    Noise in space, in time and in both become comparable: what is said is of the whole run of T
    steps that the noise is for, at the scale that meets the target.

    Args:
        design: a design against a reader of all messages, or a solution or loaded file that has
            one.
        error: a measure over the T steps that its noise is for, or of noise without a horizon over
            any T; a mapping has fields of :class:`noisedesign.ErrorMeasure`, and needs no
            ``horizon`` where the noise has one. None: the one it was designed for where that counts
            all of these steps, else that of all iterates.
        mixing: W, shape (n, n), or a list of them; None: that of its problem.

    Returns:
        The error, and that of independent noise with the same protection.

    Raises:
        InputError: another horizon than that of the noise, or none where it has none; a design
            without W where none is given, or one against chosen observers; a worst step.

    Examples:
        A ring of four has the eigenvalues 1, 1/3, 1/3, -1/3, and the optimal R of one step 1/2 over
        their absolute values. Over two steps of such noise the error is 1 + 1 + 5/9; that of
        independent noise is 4/3 + 4/3 + 28/27.

        >>> import noisedesign as nd
        >>> ring = nd.build_graph("ring", nodes=4)
        >>> problem = nd.SpaceProblem.from_graph(ring, participation=nd.participation.single(2))
        >>> found = nd.evaluate(nd.solve(problem))
        >>> print(f"{found.error:.4f}, {found.relative:.4f}")
        2.5556, 0.6900
    """
    endless = getattr(design, "design", design)
    if isinstance(endless, UnboundedDesign):
        return _of_endless(endless, error=error, mixing=mixing)
    found = design_of(design)
    problem = found.problem
    if found.trust != "local":
        expected = "one that protects every message"
        raise InputError("design", expected=expected, got=f"trust {found.trust!r}")
    if not found.certificate.feasible:
        raise InputError("design", expected="one that is feasible", got="one that is not")
    horizon = _horizon(problem, found.noise)
    if isinstance(error, Mapping):
        error = _measure({"horizon": horizon, **error})
    if error is None:
        error = problem.error if _counts_all(problem.error, horizon) else None
        error = error or ErrorMeasure(horizon=horizon)
    _check_sum(error)
    if error.horizon != horizon:
        expected = f"{horizon}, the steps that the noise is for"
        raise InputError("error.horizon", expected=expected, got=f"{error.horizon}")
    workload = _workload(problem, mixing=mixing, error=error)
    family = family_of(problem)
    independent = family.independent(family.program(problem))
    stddev = calibration_of(problem).noise_stddev
    return Evaluation(
        of=error.of,
        error=stddev**2 * noise_error(found.noise, workload),
        independent=stddev**2 * noise_error(independent, workload),
        noise_stddev=stddev,
        horizon=horizon,
    )


def _of_endless(design: UnboundedDesign, *, error: Any, mixing: Any) -> Evaluation:
    """The error of the first steps of noise without a horizon."""
    if isinstance(error, Mapping):
        error = _measure(error)
    if error is None:
        raise _without_horizon()
    _check_sum(error)
    problem, steps = design.problem, error.horizon
    given = problem.mixing if mixing is None else mixing
    if given is None:
        raise _without_mixing()
    time_gram = Workload.of(given, horizon=steps, error=error).time_gram(None)
    # Scaled to the target, and to a sensitivity that is for ever.
    first = next(design.filter.noising_columns(steps))[:, 0]
    noising = np.tril(toeplitz(first))
    often = min(problem.max_participations, -(-steps // problem.separation))
    stddev = design.claim.noise_stddev
    return Evaluation(
        of=error.of,
        error=float(np.sum(noising * (time_gram @ noising))),
        independent=often * stddev**2 * float(np.trace(time_gram)),
        noise_stddev=stddev,
        horizon=steps,
    )


def _measure(keys: Mapping[str, Any]) -> ErrorMeasure:
    """The measure of these fields, whose errors name ``error`` and the field."""
    known = inspect.signature(ErrorMeasure).parameters
    if unknown := [key for key in keys if key not in known]:
        expected = f"one of {', '.join(known)}"
        raise InputError(f"error.{unknown[0]}", expected=expected, got="no such key")
    if "horizon" not in keys:
        raise _without_horizon()
    with renamed({key: f"error.{key}" for key in known}):
        return ErrorMeasure(**keys)


def error_of_run(design: Any) -> float | None:
    """The error of :func:`evaluate`; None of noise that it does not take, or would take long."""
    problem = design.problem
    if problem.sparse or len(problem.nodes) * _horizon(problem, design.noise) > MOST_PAIRS:
        return None
    try:
        return evaluate(design).error
    except InputError:
        return None


def _check_sum(error: ErrorMeasure | ErrorMixture) -> None:
    if error.of in WORST:
        expected = "an error that is a sum over steps"
        raise InputError("error.of", expected=expected, got=f"'{error.of}'")


def _without_horizon() -> InputError:
    expected = "the number of steps that count: the noise has no horizon"
    return InputError("error.horizon", expected=expected, got="none")


def _without_mixing() -> InputError:
    return InputError("mixing", expected="W, as the problem has none", got="nothing")


def _horizon(problem: Problem, noise: Noise) -> int:
    """T, the steps that noise is for."""
    if problem.use is not None:
        return problem.use.horizon
    if noise.steps is not None:
        return noise.steps
    return problem.horizon if problem.axes == "space" else 1


def _counts_all(error: ErrorMeasure | ErrorMixture | None, horizon: int) -> bool:
    return error is not None and error.of not in WORST and error.horizon == horizon


def _workload(problem: Problem, *, mixing: Any, error: Any) -> Workload:
    """The workload of a measure under a W, or that of a problem."""
    if mixing is None and problem.mixing is None:
        raise _without_mixing()
    if mixing is None:
        return Workload.of(
            problem.step_mixing, horizon=error.horizon, error=error, random=problem.step_random
        )
    return Workload.of(mixing, horizon=error.horizon, error=error)


def noise_error(noise: Noise, workload: Workload) -> float:
    """tr(H cov(z)) of the noise of a whole run, squared, at the scale that it is stored in."""
    if noise.full:
        return _full_error(noise, workload)
    if noise.strategy is None:
        return float(np.sum(workload.space_gram() * noise.covariance))
    covariance = None if noise.space is None else noise.covariance
    noising: Array = noise.strategy.dense_noising()
    return float(np.sum(noising * (workload.time_gram(covariance) @ noising)))


def _full_error(noise: Noise, workload: Workload) -> float:
    """The error of noise whose strategy is over all pairs of node and step."""
    form = noise.strategy
    assert form is not None
    if isinstance(form, ModalStrategy) and workload.modes is not None:
        return of_modes.error(workload, form)
    noising: Array = form.dense_noising()
    return float(np.sum(noising * (workload.gram() @ noising)))
