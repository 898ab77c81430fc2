"""JAX: designed noise as an optax transformation, which is what JAX Privacy calls a privatizer.

Noise is drawn on the host, once a step, also where ``update`` is compiled: then JAX makes a
RuntimeError of an InputError, as soon as the result is used. The privatizers of JAX Privacy seed
themselves from numpy's global generator where they are given no key, see no records, and go on past
the horizon, where the one of a dense matrix repeats its last noise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
import optax
from jax.experimental import io_callback
from jax_privacy import batch_selection, clipping, noise_addition
from jax_privacy.matrix_factorization import (
    banded,
    buffered_toeplitz,
    streaming_matrix as streaming,
    toeplitz,
)

from noisedesign.adapters.run import Run
from noisedesign.base.checks import InputError, describe
from noisedesign.noise.filters import Banded, Buffered, Filter, Fresh, Moving, Toeplitz
from noisedesign.noise.plan import OWN, Plan
from noisedesign.noise.source import NodeNoise


class Training(Run):
    """One training run of one node, in JAX.

    Args:
        noise: as of :class:`Run`.
        clip: likewise.

    Raises:
        InputError: likewise.

    Examples:
        >>> import jax.numpy as jnp
        >>> import noisedesign as nd
        >>> from noisedesign.adapters.jax_privacy import Training
        >>> from noisedesign.noise import noise
        >>> target = nd.PrivacyTarget(epsilon=1.0, clip=1.0)
        >>> scheme = nd.participation.single(2)
        >>> problem = nd.TimeProblem.prefix(participation=scheme, privacy=target)
        >>> source = noise(nd.solve(problem).design, node=0, record=False)
        >>> training = Training(source, clip=1.0)
        >>> privatizer = training.privatizer()
        >>> sums = jnp.zeros(3)  # of clipped gradients
        >>> noisy, state = privatizer.update(sums, privatizer.init(sums), records=["ann"])
        >>> int(state), bool((noisy != 0).all())
        (1, True)
    """

    def __init__(self, noise: NodeNoise, *, clip: float | None = None) -> None:
        super().__init__(noise, clip=clip)
        self._announced: dict[int, np.ndarray] = {}
        """Records of the steps that :meth:`batch_selection` has handed out."""

    def privatizer(self) -> Any:
        """Adds the noise of the next step to a sum of clipped gradients.

        ``init(model)`` gives its state, the next step; ``update(sums, state, params=None,
        records=None)`` the sums with noise, in their own dtype, and the next state. ``records`` are
        numbers or words, an array of integers where ``update`` is compiled, and not needed within
        :meth:`batch_selection`. A state is used once.

        Returns:
            An ``optax.GradientTransformationExtraArgs``.
        """

        def add(records: Iterable[Any], *leaves: Any) -> list[Any]:
            arrays = [np.array(leaf) for leaf in leaves]
            self.add_(arrays, records=records)
            return arrays

        def update(sums: Any, state: Any, params: Any = None, *, records: Any = None) -> Any:
            leaves, tree = _leaves(sums)
            state, noisy = self._on_host(
                add, state, records, leaves, traced=_traced(state, records, leaves)
            )
            return tree.unflatten(noisy), state

        return optax.GradientTransformationExtraArgs(lambda _: self._first_state(), update)

    def streaming_privatizer(self) -> Any:
        """The privatizer of JAX Privacy with :func:`streaming_matrix`, keyed by the node's secret.

        Its noise is drawn on the device, from a key of 64 bits, all that JAX's generator takes. It
        stops and counts records as :meth:`privatizer` does; but what noise is added to is recorded
        nowhere, and a run goes on from a checkpoint of this state and of :meth:`state_dict`.

        Returns:
            An ``optax.GradientTransformationExtraArgs``.

        Raises:
            InputError: as :func:`streaming_matrix`; a run that has begun otherwise.
        """
        theirs = noise_addition.matrix_factorization_privatizer(
            streaming_matrix(self.noise.plan),
            stddev=1.0,
            prng_key=self._prng_key(),
            dtype=jax.numpy.result_type(float),
        )

        def count(records: Sequence[Any], norm: Any) -> list[Any]:
            self.noise.check_sum(float(norm), records=len(records))
            self.skip(records)
            return [norm]

        def init(model: Any) -> Any:
            return self._first_state(), theirs.init(model)

        def update(sums: Any, state: Any, params: Any = None, *, records: Any = None) -> Any:
            leaves, tree = _leaves(sums)
            step, inner = state
            norm = optax.tree.norm(leaves)
            step, _ = self._on_host(
                count, step, records, [norm], traced=_traced(state, records, leaves)
            )
            noisy, inner = theirs.update(tree.unflatten(leaves), inner)
            return noisy, (step, inner)

        return optax.GradientTransformationExtraArgs(init, update)

    def clipped_grad(self, fun: Any, **how: Any) -> Any:
        """``jax_privacy.clipping.clipped_grad`` with the clip of the design.

        Every argument of the loss but ``argnums``, the parameters, is of records, a row each. JAX
        Privacy takes the first alone for that, so that a gradient is of the labels of all.

        Args:
            fun: the loss, of parameters, features, labels and whatever else is of records.
            **how: as of JAX Privacy; ``batch_argnums``, where an argument is of no records.

        Returns:
            A function that gives the sum of clipped gradients, and refuses arguments of records
            that have other numbers of rows, and one of no records that has as many.

        Raises:
            InputError: a norm or a scale of the sum that the design is not for.
        """
        for name, designed in (("rescale_to_unit_norm", False), ("normalize_by", 1.0)):
            if how.get(name, designed) != designed:
                expected = f"{designed}: noise is added to sums of gradients clipped to {self.clip}"
                raise InputError(name, expected=expected, got=describe(how[name]))
        if how.setdefault("l2_clip_norm", self.clip) != self.clip:
            expected = f"{self.clip}, which the design is for"
            raise InputError("l2_clip_norm", expected=expected, got=describe(how["l2_clip_norm"]))
        stated = how.pop("batch_argnums", None)
        others = {*_numbered(how.get("argnums", 0)), how.get("prng_argnum")}
        aux = any(how.get(name) for name in ("has_aux", "return_values", "return_grad_norms"))

        def sums(*args: Any, **named: Any) -> Any:
            rest = tuple(at for at in range(len(args)) if at not in others)
            of_records = rest if stated is None else _numbered(stated)
            _check_rows(args, of_records, set(rest).difference(of_records))
            return clipping.clipped_grad(fun, batch_argnums=of_records, **how)(*args, **named)

        return clipping.BoundedSensitivityCallable(sums, self.clip, aux)

    def batch_selection(self, *, batch_size: int | None = None, seed: int | None = None) -> Any:
        """:meth:`batches` as a ``BatchSelectionStrategy`` of JAX Privacy, from the next step on;
        ``update`` need not be told the records that it hands out.

        Args:
            batch_size: as of :meth:`batches`.
            seed: likewise.

        Returns:
            The strategy.
        """
        training = self

        class Designed(batch_selection.BatchSelectionStrategy):
            def batch_iterator(self, num_examples: int, rng: Any = None) -> Iterator[np.ndarray]:
                batches = training.batches(num_examples, batch_size=batch_size, seed=seed)
                jax.effects_barrier()
                for step in range(training.step, training.horizon):
                    training._announced[step] = batches[step].copy()
                    yield batches[step]

        return Designed()

    def state_dict(self) -> dict[str, Any]:
        """The state of :class:`Run`, once all steps that were asked for are taken.

        Returns:
            JSON values.
        """
        jax.effects_barrier()
        return super().state_dict()

    def _on_host(
        self, function: Any, step: Any, records: Any, leaves: list[Any], *, traced: bool
    ) -> tuple[Any, list[Any]]:
        """Return the next state and ``function(records, *leaves)``, of traced values when run."""
        if records is None:
            if not self._announced:
                raise _nobody()
            told: tuple[Any, ...] = ()
        else:
            if traced and not (
                hasattr(records, "dtype") and jax.numpy.issubdtype(records.dtype, np.integer)
            ):
                expected = "an array of integers, where update is compiled"
                raise InputError("records", expected=expected, got=describe(records))
            told = (records,)

        def host(step: Any, *rest: Any) -> tuple[Any, ...]:
            taken = self._taken(int(step), rest[: len(told)])
            found = function(taken, *rest[len(told) :])
            self._announced.pop(int(step), None)
            return (np.int32(self.step), *found)

        if traced:
            shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
            counted = jax.ShapeDtypeStruct((), np.int32)
            step, *found = io_callback(host, (counted, *shapes), step, *told, *leaves, ordered=True)
        else:
            step, *found = map(jax.numpy.asarray, host(step, *told, *leaves))
        return step, found

    def _taken(self, step: int, told: tuple[Any, ...]) -> Iterable[Any]:
        """The records of a step, which is the next one."""
        if step != self.step:
            expected = f"the state of step {self.step}, which is next"
            remedy = "A state is used once: noise on other data would show their difference."
            raise InputError("state", expected=expected, got=f"step {step}", remedy=remedy)
        records = told[0] if told else self._announced.get(step)
        if records is None:
            raise _nobody()
        if hasattr(records, "dtype"):
            return np.asarray(records).ravel().tolist()
        return tuple(records)

    def _first_state(self) -> Any:
        return jax.numpy.asarray(self.step, dtype=np.int32)

    def _prng_key(self) -> Any:
        """Make a key of the secret, the design and the node; the secret is used from now on."""
        self.noise.step(0, (0,))
        secret, plan = self.noise.secret, self.noise.plan
        assert secret is not None
        bits = secret.step_key(f"jax {plan.streams[0].name}", 0, digest=plan.digest)
        return jax.random.wrap_key_data(np.frombuffer(bits[:8], np.uint32), impl="threefry2x32")


def _numbered(arguments: int | Iterable[int]) -> tuple[int, ...]:
    """Numbers of arguments, as JAX has them: one, or several."""
    return (arguments,) if isinstance(arguments, int) else tuple(arguments)


def _check_rows(args: Sequence[Any], of_records: Sequence[int], others: Iterable[int]) -> None:
    """Check that arguments of records have a row a record, and that no other has as many."""

    def rows(numbers: Iterable[int]) -> set[int | None]:
        shapes = [np.shape(leaf) for at in numbers for leaf in jax.tree.leaves(args[at])]
        return {shape[0] if shape else None for shape in shapes}

    found = rows(at for at in of_records if at < len(args))
    if len(found) != 1 or None in found:
        expected = f"a row a record in each of the arguments {', '.join(map(str, of_records))}"
        got = " and ".join("none" if count is None else f"{count} rows" for count in found)
        remedy = "State those of records as batch_argnums; the loss may be a partial of others."
        raise InputError("batch_argnums", expected=expected, got=got or "none", remedy=remedy)
    for at in others:
        if found & rows([at]):
            (count,) = found
            expected = f"argument {at} among them: it has {count} rows, as many as records"
            got = ", ".join(map(str, of_records))
            remedy = (
                "Every record's gradient would see all of it. Where it is of no records, "
                "make the loss a functools.partial of it."
            )
            raise InputError("batch_argnums", expected=expected, got=got, remedy=remedy)


def _traced(*values: Any) -> bool:
    """Whether a program is being made, which is run later."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(values))


def _leaves(sums: Any) -> tuple[list[Any], Any]:
    """Return arrays of JAX, which may have fewer digits than what is given."""
    leaves, tree = jax.tree.flatten(sums)
    for at, leaf in enumerate(leaves):
        dtype = getattr(leaf, "dtype", None)
        if dtype not in (np.float32, np.float64):
            expected, got = "float32 or float64", describe(leaf) if dtype is None else str(dtype)
            remedy = "Sum gradients in float32 or float64: in less, noise is rounded away."
            raise InputError(f"sums[{at}]", expected=expected, got=got, remedy=remedy)
    return [jax.numpy.asarray(leaf) for leaf in leaves], tree


def _nobody() -> InputError:
    expected = "the records in this sum: update(sums, state, records=...)"
    remedy = "Without them nobody sees whether the design is kept to."
    return InputError("records", expected=expected, got="nothing", remedy=remedy)


def streaming_matrix(plan: Plan) -> Any:
    """Noise of a node over time as a ``StreamingMatrix`` of JAX Privacy.

    It is C^-1 times ``noise_stddev``, for
    ``matrix_factorization_privatizer(matrix, stddev=1.0, prng_key=...)``, which does not stop after
    the T steps of the design. Numbers are float64 where ``jax_enable_x64`` is set, else float32.

    Args:
        plan: of a node whose noise is its own alone, with C banded, Toeplitz, of banded inverse or
            buffered, or drawn afresh at every step.

    Returns:
        The matrix.

    Raises:
        InputError: noise that the node shares, or a dense C.

    Examples:
        Noise that is drawn afresh: noise_stddev times the identity.

        >>> import noisedesign as nd
        >>> import numpy as np
        >>> from noisedesign.adapters.jax_privacy import streaming_matrix
        >>> target = nd.PrivacyTarget(epsilon=1.0, steps=2)
        >>> problem = nd.SpaceProblem.from_graph(nd.build_graph("path", nodes=4), privacy=target)
        >>> plan = nd.baseline(problem, "ldp").node_plan(0)
        >>> matrix = np.asarray(streaming_matrix(plan).materialize(2))
        >>> (matrix / plan.claim.noise_stddev).round(4).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    if plan.couplings is not None or [stream.source for stream in plan.streams] != [OWN]:
        expected, got = "noise of its own alone", "noise shared with other nodes"
        raise InputError("plan", expected=expected, got=got, remedy="Use Training.privatizer.")
    (stream,) = plan.streams
    return _streaming(plan.filter) * stream.coefficient


def _streaming(filter_: Filter) -> Any:
    match filter_:
        case Fresh():
            return streaming.identity()
        case Toeplitz():
            return toeplitz.inverse_as_streaming_matrix(_array(filter_.strategy_coefficients))
        case Banded():
            # Theirs has columns of unit norm: C = (its C) diag(norms).
            norms = np.linalg.norm(filter_.strategy_bands, axis=0)
            unit = banded.ColumnNormalizedBanded(params=_array(filter_.strategy_bands.T))
            return unit.inverse_as_streaming_matrix().scale_rows_and_columns(
                row_scale=_array(1 / norms)
            )
        case Moving():
            return _moving(_array(filter_.noising_coefficients))
        case Buffered() if filter_.kind == Buffered.kind:
            buffers = buffered_toeplitz.BufferedToeplitz.build(
                filter_.buffer_decays, filter_.buffer_scales, dtype=jax.numpy.result_type(float)
            )
            return buffers.inverse_as_streaming_matrix() * (1 / filter_.strategy_diagonal[0])
    remedy = "Use Training.privatizer, or design with a structure in time."
    expected = "a banded or Toeplitz C, or one of positive buffers"
    raise InputError("plan", expected=expected, got=f"a {filter_.kind} one", remedy=remedy)


def _moving(taps: Any) -> Any:
    """z_t = sum_i d_i w_(t-i)."""

    def init(like: Any) -> Any:
        dtype = jax.numpy.promote_types(like.dtype, taps.dtype)
        zero = jax.numpy.zeros_like(like, dtype=dtype)
        return jax.numpy.broadcast_to(zero, (len(taps) - 1, *zero.shape))

    def step(draw: Any, kept: Any) -> Any:
        found = taps[0] * draw + jax.numpy.tensordot(taps[1:], kept, axes=1)
        if len(taps) > 1:
            kept = jax.numpy.roll(kept, 1, axis=0).at[0].set(draw)
        return found, kept

    return streaming.StreamingMatrix.from_array_implementation(init, step)


def _array(numbers: Any) -> Any:
    return jax.numpy.asarray(np.asarray(numbers), dtype=jax.numpy.result_type(float))
