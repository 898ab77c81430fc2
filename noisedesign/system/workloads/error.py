"""The error that a design is to keep small, before any mixing matrix is known.

The state is how far models are from those without noise: x_{t+1} = W (x_t - eta_t m_t), x_1 = 0,
m_t = beta m_{t-1} + lambda x_t + z_t, where the loss has the curvature lambda, 0 unless it is said.
The error is the sum over steps of a_t x_{t+1}^T Q_t x_{t+1}."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import InitVar, dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.base.shown import Shown
from noisedesign.system.workloads.factorization_norm import least_errors

Error = Literal["all-iterates", "last-iterate", "mean-model", "consensus", "loss", "loss-of-mean"]
ERRORS: tuple[str, ...] = get_args(Error)
WORST = ("worst", "worst-node", "worst-iterate")
"""Errors that are no sums, but the largest of some: over steps, over nodes, over both."""
UNKNOWN_HORIZON = "unknown-horizon"  # step weights by the least error of every horizon
OF_THE_END = ("last-iterate", "loss", "loss-of-mean")  # which count the models after step T alone


class Term(NamedTuple):
    """A part of an error: its weight, and the curvature that the models of a measure feel."""

    weight: float
    curvature: float
    measure: ErrorMeasure


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ErrorMeasure(Shown):
    """The squared error that noise causes, as weights on nodes and steps.

    With node weights w, and the mean model m^T x for an ``average`` m:

    - ``all-iterates`` (also ``every-iterate``): :math:`sum_i w_i x_i^2`, at every step;
    - ``last-iterate``: the same, after step T only;
    - ``worst``: the same, after the step t at which a_t times it is largest;
    - ``worst-node``: :math:`w_i x_i^2` of all steps, of the node at which it is largest;
    - ``worst-iterate``: :math:`a_t w_i x_i^2` at the node and after the step at which it is
      largest;
    - ``mean-model``: :math:`(sum_i w_i) (m^T x)^2`, at every step: the squared error of as many
      copies of the mean as there are nodes, not of one;
    - ``consensus``: :math:`sum_i w_i (x_i - m^T x)^2`, at every step;
    - ``loss``: sum_i w_i / sum(w) of lambda x_i^2 / 2, after step T only: what noise adds to the
      expected loss of a node's model, in units of the loss, where that is quadratic;
    - ``loss-of-mean``: :math:`lambda (m^T x)^2 / 2`, after step T only, of the mean model.

    Mean model and consensus add up to the first where m is proportional to w, as by default.
    With several curvatures the error is their weighted sum.

    Args:
        horizon: T, the number of steps.
        of: one of ``ERRORS`` or of ``WORST``.
        node_weights: w, scalar or shape (n,), nonnegative; default 1 for every node.
        average: m, shape (n,), nonnegative; scaled to sum 1. Default w. On a directed graph the
            models agree on another mean: see :mod:`noisedesign.system.directed`.
        step_weights: a, scalar or shape (T,), nonnegative; default 1. With one step only, the mean
            model or the consensus of that step. ``last-iterate`` has its own. "unknown-horizon",
            of ``worst`` for prefix sums at one participation: 1 over the least squared error of
            step t had t been known to be the last, T at most 4096
            (:mod:`noisedesign.system.workloads.factorization_norm`).
        learning_rates: eta, scalar or shape (T,), nonnegative; default 1.
        learning_rate: eta of all steps, in place of ``learning_rates``.
        momentum: beta in [0, 1), not squared.
        curvature: lambda, scalar or shape (m,), nonnegative: eigenvalues of the Hessian of the loss
            of which a step is taken, or the two ends of a range of them. Default 0: steps forget
            nothing.
        curvature_weights: how many coordinates have each, scalar or shape (m,), nonnegative;
            default 1.
        weight_decay: added to every curvature, nonnegative.
        push_sum_weights: y, shape (n,) or (T, n), positive: the model of node i after step t is
            x_i / y_ti, and takes the place of x_i above (m stays on the state x). Default 1.

    Raises:
        InputError: naming the field: an unknown error, weights of another length than T, negative,
            only zeros, too large or too small, momentum outside [0, 1), curvatures at which steps
            of these learning rates diverge, a loss without a curvature.

    Examples:
        >>> import noisedesign as nd
        >>> nd.ErrorMeasure(horizon=2, of="consensus").readout(nodes=2).tolist()
        [[0.5, -0.5], [-0.5, 0.5]]
    """

    horizon: int
    of: str = "all-iterates"
    node_weights: Any = None
    average: Any = None
    step_weights: Any = None
    learning_rates: Any = None
    momentum: float = 0.0
    push_sum_weights: Any = None
    curvature: Any = None
    curvature_weights: Any = None
    weight_decay: float = 0.0
    learning_rate: InitVar[float | None] = None
    unknown_horizon: bool = field(default=False, init=False)

    def __post_init__(self, learning_rate: float | None) -> None:
        horizon = _checks.positive_int(self.horizon, field="horizon")
        if learning_rate is not None:
            rate = _checks.scale(learning_rate, field="learning_rate")
            if self.learning_rates is not None:
                expected = "nothing beside learning_rates"
                raise InputError("learning_rate", expected=expected, got=f"{rate:g}")
            object.__setattr__(self, "learning_rates", rate)
        if isinstance(self.of, str) and self.of == "every-iterate":
            object.__setattr__(self, "of", "all-iterates")
        _checks.one_of(self.of, field="of", allowed=(*ERRORS, *WORST))
        momentum = _checks.real(self.momentum, field="momentum")
        if not 0 <= momentum < 1:
            raise InputError("momentum", expected="a number in [0, 1)", got=f"{momentum:g}")
        if self.of in OF_THE_END and self.step_weights is not None:
            expected = f'nothing for of = "{self.of}"'
            remedy = 'Weights of several steps belong to "all-iterates".'
            raise InputError("step_weights", expected=expected, got="step weights", remedy=remedy)
        if isinstance(self.step_weights, str):
            self._set_unknown_horizon(horizon)
        for key in ("step_weights", "learning_rates"):
            if (value := getattr(self, key)) is not None:
                checked = _weights(value, field=key, length=horizon, each="step")
                object.__setattr__(self, key, checked)
        if self.push_sum_weights is not None:
            object.__setattr__(self, "push_sum_weights", self._checked_push_sum(horizon))
        self._check_curvature()

    @property
    def worst(self) -> bool:
        """Whether it is the largest of some errors, and no sum."""
        return self.of in WORST

    @property
    def summed(self) -> ErrorMeasure:
        """The sum of the errors whose largest it is; itself, if it is a sum."""
        return replace(self, of="all-iterates") if self.worst else self

    def targets(self, *, nodes: int) -> list[ErrorMeasure]:
        """The errors whose largest it is, those that count.

        Args:
            nodes: the number n of nodes.

        Returns:
            An error of one step, of one node or of both, each times its weights, in their order.

        Raises:
            InputError: as of :meth:`weighted_model`.

        Examples:
            >>> import noisedesign as nd
            >>> worst = nd.ErrorMeasure(horizon=3, of="worst-iterate", step_weights=[0, 1, 2])
            >>> len(worst.targets(nodes=4))
            8
        """
        w = self.summed.weighted_model(nodes=nodes)[0]
        steps = [self.steps] if self.of == "worst-node" else np.diag(self.steps)[self.steps > 0]
        weights = [w] if self.of == "worst" else np.diag(w)[w > 0]
        return [
            replace(self.summed, step_weights=of_steps, node_weights=of_nodes)
            for of_steps in steps
            for of_nodes in weights
        ]

    def _set_unknown_horizon(self, horizon: int) -> None:
        if self.step_weights != UNKNOWN_HORIZON:
            expected, got = f'numbers, or "{UNKNOWN_HORIZON}"', repr(self.step_weights)
            raise InputError("step_weights", expected=expected, got=got)
        if self.of != "worst":
            expected = f'numbers; "{UNKNOWN_HORIZON}" is for of = "worst"'
            raise InputError("step_weights", expected=expected, got=f'of = "{self.of}"')
        object.__setattr__(self, "step_weights", least_errors(horizon) ** -2)
        object.__setattr__(self, "unknown_horizon", True)

    def _check_curvature(self) -> None:
        _checks.nonnegative(self.weight_decay, field="weight_decay")
        count = 1
        if self.curvature is not None:
            given = _checks.as_array(self.curvature, field="curvature", ndim=1)
            count = given.size
            checked = _weights(self.curvature, field="curvature", length=count, each="coordinate")
            object.__setattr__(self, "curvature", checked)
        if self.curvature_weights is not None:
            field, value = "curvature_weights", self.curvature_weights
            if self.curvature is None:
                raise InputError(field, expected="nothing without curvature", got="some")
            checked = _weights(value, field=field, length=count, each="curvature")
            object.__setattr__(self, field, checked)
        rates = 1.0 if self.learning_rates is None else float(np.max(self.learning_rates))
        steepest = float(np.max(self.curvatures))
        if rates * steepest > 2 * (1 + self.momentum):
            key = "weight_decay" if self.curvature is None else "curvature"
            expected = f"at most {2 * (1 + self.momentum) / rates:.6g} with weight decay"
            remedy = "Steps of the largest learning rate diverge beyond 2 (1 + momentum) / it."
            raise InputError(key, expected=expected, got=f"{steepest:.6g}", remedy=remedy)
        if self.of.startswith("loss") and not steepest:
            expected = f'curvatures of the loss, for of = "{self.of}"'
            raise InputError("curvature", expected=expected, got="none")

    @property
    def curvatures(self) -> Array:
        """lambda with weight decay, shape (m,)."""
        given = np.zeros(1) if self.curvature is None else np.asarray(self.curvature)
        return np.asarray(given + self.weight_decay)

    @property
    def terms(self) -> list[Term]:
        """One term a curvature that counts."""
        found, counts = self.curvatures, self.curvature_weights
        weights = np.ones(len(found)) if counts is None else np.asarray(counts)
        if self.of.startswith("loss"):
            weights = weights * found / 2
        pairs = zip(weights, found, strict=True)
        return [Term(float(weight), float(at), self) for weight, at in pairs if weight]

    def _checked_push_sum(self, horizon: int) -> Array:
        field, value = "push_sum_weights", self.push_sum_weights
        given = _checks.as_array(value, field=field, ndim=2)
        if given.ndim == 2:
            result = _checks.matrix(value, field=field)
            if len(result) != horizon:
                expected = f"{horizon} rows, one per step"
                raise InputError(field, expected=expected, got=f"{len(result)}")
        else:
            result = _checks.vector(value, field=field, length=given.size)
        _checks.positive_vector(result.ravel(), field=field, length=result.size)
        return result

    @property
    def steps(self) -> Array:
        """The weight a of every step's squared error, shape (T,)."""
        if self.of in OF_THE_END:
            return np.asarray(np.eye(self.horizon)[-1])
        return np.ones(self.horizon) if self.step_weights is None else np.asarray(self.step_weights)

    @property
    def rates(self) -> Array:
        """eta of every step, shape (T,)."""
        rates = 1.0 if self.learning_rates is None else self.learning_rates
        return np.asarray(np.broadcast_to(rates, self.horizon), np.float64)

    @property
    def step_factor(self) -> Array:
        """F_ts = eta_t beta^(t-s), not squared, shape (T, T), lower triangular."""
        factor = np.eye(self.horizon)
        if self.momentum > 0:
            lags = np.subtract.outer(np.arange(self.horizon), np.arange(self.horizon))
            factor = np.where(lags >= 0, self.momentum ** np.maximum(lags, 0), 0.0)
        if self.learning_rates is not None:
            factor = self.learning_rates[:, None] * factor
        return np.asarray(factor)

    @property
    def plain(self) -> bool:
        """Whether every iterate of every node counts alike, and nothing else is said."""
        said = (self.node_weights, self.average, self.step_weights, self.learning_rates)
        silent = all(value is None for value in (*said, self.push_sum_weights, self.curvature))
        silent = silent and self.momentum == self.weight_decay == 0
        return silent and self.of == "all-iterates"

    @property
    def time_invariant(self) -> bool:
        """Whether Q_t is the same at every step."""
        return self.push_sum_weights is None or self.push_sum_weights.ndim == 1

    def readout(self, *, nodes: int, step: int = 0) -> Array:
        """Q_t, squared error per squared state.

        Args:
            nodes: the number n of nodes.
            step: t, zero-based.

        Returns:
            Q_t, shape (n, n), symmetric positive semidefinite.

        Raises:
            InputError: ``nodes`` < 1, or weights for another number of nodes; a step outside the
                horizon.
        """
        w, model = self.weighted_model(nodes=nodes, step=step)
        return np.asarray(model.T @ (w[:, None] * model))

    def weighted_model(self, *, nodes: int, step: int = 0) -> tuple[Array, Array]:
        """The weights w and the readouts G of the state, with Q_t = G^T diag(w) G.

        Args:
            nodes: the number n of nodes.
            step: t, zero-based.

        Returns:
            w, shape (r,), and G, shape (r, n), of one row for the mean model, else of n.

        Raises:
            InputError: as for :meth:`readout`.
        """
        nodes = _checks.positive_int(nodes, field="nodes")
        if _checks.positive_int(step, field="step", minimum=0) >= self.horizon:
            raise InputError("step", expected=f"steps 0 to {self.horizon - 1}", got=str(step))
        w = np.ones(nodes)
        if self.node_weights is not None:
            w = _weights(self.node_weights, field="node_weights", length=nodes, each="node")
        m = w
        if self.average is not None:
            m = _weights(self.average, field="average", length=nodes, each="node")
        m = m / m.sum()
        if self.of in ("mean-model", "loss-of-mean"):
            return np.array([w.sum() if self.of == "mean-model" else 1.0]), m[None, :]
        if self.of == "loss":
            w = w / w.sum()
        model = np.eye(nodes)
        if self.push_sum_weights is not None:
            every = np.atleast_2d(self.push_sum_weights)
            if every.shape[1] != nodes:
                expected = f"{nodes} values, one per node"
                raise InputError("push_sum_weights", expected=expected, got=f"{every.shape[1]}")
            model = np.diag(1 / every[step % len(every)])
        if self.of == "consensus":
            model = model - m
        return w, model


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ErrorMixture(Shown):
    """A sum of errors of one run, each times its share: all iterates a little, the last the most.

    Args:
        shares: what a unit of each error counts, shape (r,), nonnegative, in any unit.
        measures: r errors of the same horizon, learning rates, momentum and curvatures.

    Raises:
        InputError: shares that are negative or all zero, another number of them than of errors,
            errors of different runs.

    Examples:
        >>> import noisedesign as nd
        >>> both = [nd.ErrorMeasure(horizon=3, of=f"{of}-iterate") for of in ("every", "last")]
        >>> mixture = nd.ErrorMixture(shares=[0.2, 0.8], measures=both)
        >>> [float(term.weight) for term in mixture.terms]
        [0.2, 0.8]
    """

    shares: Any
    measures: tuple[ErrorMeasure, ...]

    def __post_init__(self) -> None:
        expected = "errors of one run"
        measures = tuple(_checks.listed(self.measures, field="measures", expected=expected))
        for measure in measures:
            _checks.instance(measure, ErrorMeasure, field="measures", expected=expected)
        if not measures:
            raise InputError("measures", expected=expected, got="none")
        for measure in measures:
            if measure.worst:
                raise InputError("of", expected="errors that are sums", got=f'"{measure.of}"')
        object.__setattr__(self, "measures", measures)
        shares = _weights(self.shares, field="shares", length=len(measures), each="error")
        object.__setattr__(self, "shares", shares)
        first = measures[0]
        for measure in measures[1:]:
            for name, is_said in _RUN.items():
                if not np.array_equal(is_said(measure), is_said(first)):
                    expected = "the same for all errors of a mixture"
                    raise InputError(name, expected=expected, got="another one")

    worst: ClassVar[bool] = False

    @property
    def of(self) -> str:
        """Name what is measured."""
        return " and ".join(measure.of for measure in self.measures)

    @property
    def horizon(self) -> int:
        """T, the number of steps."""
        return self.measures[0].horizon

    @property
    def momentum(self) -> float:
        """beta of the run, not squared."""
        return self.measures[0].momentum

    @property
    def rates(self) -> Array:
        """eta of every step, shape (T,)."""
        return self.measures[0].rates

    @property
    def push_sum_weights(self) -> Array | None:
        """Give those of the run, shape (n,) or (T, n); None where they are not said."""
        weights = self.measures[0].push_sum_weights
        return None if weights is None else np.asarray(weights)

    @property
    def plain(self) -> bool:
        """Whether nothing but all iterates counts, which is never so."""
        return False

    @property
    def terms(self) -> list[Term]:
        """Give those of every error, times its share."""
        pairs = zip(self.shares, self.measures, strict=True)
        found = [(share, term) for share, measure in pairs if share for term in measure.terms]
        return [term._replace(weight=float(share) * term.weight) for share, term in found]


_RUN: dict[str, Callable[[ErrorMeasure], Any]] = {  # what errors of one run have in common
    "horizon": lambda measure: measure.horizon,
    "momentum": lambda measure: measure.momentum,
    "learning_rates": lambda measure: measure.rates,
    "curvature": lambda measure: measure.curvatures,
    "curvature_weights": lambda measure: measure.curvature_weights,
    "push_sum_weights": lambda measure: measure.push_sum_weights,
}


AnyError = ErrorMeasure | ErrorMixture


def measures_of(error: AnyError) -> tuple[ErrorMeasure, ...]:
    """The errors that it is made of."""
    return error.measures if isinstance(error, ErrorMixture) else (error,)


def among(error: AnyError, there: Array) -> AnyError | None:
    """The error a node of those who are ``there``, 0 or 1, (n,); None where none of them counts."""
    found = []
    for measure in measures_of(error):
        weights = there * (1.0 if measure.node_weights is None else measure.node_weights)
        average = None if measure.average is None else there * measure.average
        if not weights.any() or (average is not None and not average.any()):
            return None
        found.append(replace(measure, node_weights=weights / weights.sum(), average=average))
    return replace(error, measures=tuple(found)) if isinstance(error, ErrorMixture) else found[0]


def _weights(value: Any, *, field: str, length: int, each: str) -> Array:
    """Nonnegative values, not all zero, one per node or step; a scalar is repeated."""
    given = _checks.as_array(value, field=field, ndim=1)
    if given.ndim == 1 and len(given) != length:
        raise InputError(field, expected=f"{length} values, one per {each}", got=f"{len(given)}")
    result = _checks.vector(value, field=field, length=length)
    if result.min() < 0:
        worst = int(result.argmin())
        expected = "nonnegative values"
        raise InputError(field, expected=expected, got=f"{result[worst]:.6g} at index {worst}")
    if result.max() == 0:
        raise InputError(field, expected="at least one positive value", got="zeros")
    _checks.check_size(result, int(result.argmax()), field=field)
    return result
