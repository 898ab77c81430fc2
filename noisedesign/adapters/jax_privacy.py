"""JAX: designed noise as an optax transformation, which is what JAX Privacy calls a privatizer.

Noise is drawn where the model is, bit for bit that of the node. Before, the host checks and records
what it hides: it gets a hash and a norm, and answers with the keys of the step, which are in no
compiled program, and without which there is no noise. In compiled code JAX makes a RuntimeError of
an InputError, as soon as the result is used. The privatizers of JAX Privacy seed themselves from
numpy's global generator where they are given no key, see no records, and go on past the horizon,
where the one of a dense matrix repeats its last noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from threading import RLock
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from jax.experimental import io_callback
from jax_privacy import batch_selection, clipping
from jax_privacy.matrix_factorization import (
    banded,
    buffered_toeplitz,
    streaming_matrix as streaming,
    toeplitz,
)

from noisedesign.adapters import jax_noise
from noisedesign.adapters.jax_noise import Kind, Part, Told
from noisedesign.adapters.run import Run
from noisedesign.base.checks import InputError, describe
from noisedesign.noise.filters import Banded, Buffered, Filter, Fresh, Moving, Toeplitz
from noisedesign.noise.hidden import Hidden
from noisedesign.noise.plan import OWN, Plan
from noisedesign.noise.source import NodeNoise, not_finite

_RUN_BYTES = 8  # of a hash by which states of two runs are told apart


class State(NamedTuple):
    """The state of a privatizer. Who has it can take noise off, as who has the secret can.

    Attributes:
        step: the next step, zero-based.
        run: tells runs apart.
        hash_keys: of the hash by which the record knows what noise hides, (2, 8).
        kept: what the noise of later steps needs of earlier noise.
    """

    step: Any
    run: Any
    hash_keys: Any
    kept: tuple[Any, ...] = ()


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
        >>> int(state.step), bool((noisy != 0).all())
        (1, True)
    """

    def __init__(self, noise: NodeNoise, *, clip: float | None = None) -> None:
        super().__init__(noise, clip=clip)
        self._announced: dict[int, np.ndarray] = {}
        """Records of the steps that :meth:`batch_selection` has handed out."""
        plan, self._lock = noise.plan, RLock()
        said = repr((plan.digest, plan.node, noise.fingerprints)).encode()
        self._run = blake2b(said, digest_size=_RUN_BYTES).digest()

    def privatizer(self) -> Any:
        """Adds the noise of the next step to a sum of clipped gradients.

        ``init(model)`` gives its state, for which it draws the noise of earlier steps again where
        there were some; ``update(sums, state, params=None, records=None)`` the sums with noise, in
        their own dtype, and the next state. ``records`` are numbers or words, an array of integers
        where ``update`` is compiled, and not needed within :meth:`batch_selection`. A state is used
        once, and who has it can take noise off.

        Noise is drawn on the device; on the host of a dense or full design, and where the device
        has not the bits of a processor (a warning says so).

        Returns:
            An ``optax.GradientTransformationExtraArgs``.

        Raises:
            InputError: several processes of JAX.
        """
        if jax.process_count() > 1:
            expected, got = "one process, of any number of devices", f"{jax.process_count()}"
            raise InputError("jax.process_count", expected=expected, got=got)
        kind = jax_noise.kind_of(self.noise.plan)
        if kind is not None and not jax_noise.works():
            kind = None

        def init(model: Any) -> State:
            return self._first_state(kind, jax.tree.leaves(model))

        def update(sums: Any, state: State, params: Any = None, *, records: Any = None) -> Any:
            leaves, tree = _leaves(sums)
            traced = _traced(records, *state[:3], leaves)
            told = self._told(records, traced=traced)
            add = self._on_host if kind is None else partial(self._on_device, kind)
            noisy, state = add(leaves, state, told, traced)
            return tree.unflatten(noisy), state

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

    def _told(self, records: Any, *, traced: bool) -> tuple[Any, ...]:
        """The records that an update is told of, if any."""
        if records is None:
            if not self._announced:
                raise _nobody()
            return ()
        if traced and not (
            hasattr(records, "dtype") and jax.numpy.issubdtype(records.dtype, np.integer)
        ):
            expected = "an array of integers, where update is compiled"
            raise InputError("records", expected=expected, got=describe(records))
        return (records,)

    def _on_host(
        self, leaves: list[Any], state: State, told: tuple[Any, ...], traced: bool
    ) -> tuple[list[Any], State]:
        """Return sums with noise that is drawn on the host, and the next state."""

        def host(step: Any, run: Any, *rest: Any) -> tuple[Any, ...]:
            with self._lock:
                records = self._taken(int(step), run, rest[: len(told)])
                arrays = [np.array(leaf) for leaf in rest[len(told) :]]
                self.add_(arrays, records=records)
                self._announced.pop(int(step), None)
                return (np.int32(self.step), *arrays)

        shapes = [_shape(leaf.shape, leaf.dtype) for leaf in leaves]
        step, *noisy = _called(
            host, (_COUNT, *shapes), state.step, state.run, *told, *leaves, traced=traced
        )
        return noisy, state._replace(step=step)

    def _on_device(
        self, kind: Kind, leaves: list[Any], state: State, told: tuple[Any, ...], traced: bool
    ) -> tuple[list[Any], State]:
        """Return the same with noise that is drawn where the sums are."""
        parts = jax_noise.parts_of([_shape(leaf.shape, leaf.dtype) for leaf in leaves])
        shapes = [list(leaf.shape) for leaf in leaves]
        blank = [_nothing_kept(kind, part) for part, _ in parts]
        kept = state.kept if kind.rows else blank
        if [(k.shape, k.dtype) for k in kept] != [(k.shape, k.dtype) for k in blank]:
            raise _other_model()
        flats = [
            jax.numpy.concatenate([_gathered(leaves[at]).ravel() for at in numbers])
            for _, numbers in parts
        ]
        hashes = [
            jax_noise.hashed(part, state.hash_keys, flat)
            for (part, _), flat in zip(parts, flats, strict=True)
        ]

        def host(step: Any, run: Any, hashes: Any, *told: Any) -> tuple[Any, ...]:
            with self._lock:
                records = self._taken(int(step), run, told)
                found = [
                    jax_noise.hidden_of(part, *numbers)
                    for (part, _), numbers in zip(parts, hashes, strict=True)
                ]
                said = self._said(self.step)
                self._hide(sum(found, Hidden()), shapes, records)
                self._announced.pop(int(step), None)
                return (np.int32(self.step), *said)

        said = (_COUNT, *jax_noise.shapes_of(self.noise.plan))
        step, *found = _called(host, said, state.step, state.run, hashes, *told, traced=traced)
        drawn = [
            jax_noise.advanced(kind, part, Told(*found), state.step, flat, rows)
            for (part, _), flat, rows in zip(parts, flats, kept, strict=True)
        ]
        noisy: list[Any] = []
        for (_, numbers), (flat, _) in zip(parts, drawn, strict=True):
            ends = np.cumsum([leaves[at].size for at in numbers])[:-1]
            noisy += [
                _placed(piece.reshape(leaves[at].shape), leaves[at])
                for at, piece in zip(numbers, jax.numpy.split(flat, ends), strict=True)
            ]
        later = tuple(rows for _, rows in drawn) if kind.rows else ()
        return noisy, state._replace(step=step, kept=later)

    def _hide(self, sums: Hidden, shapes: list[list[int]], records: Iterable[Any]) -> None:
        """Record what the noise of the next step hides, which ends the step."""
        if not shapes:
            raise InputError("sums", expected="at least one array", got="none")
        if self._shapes not in (None, shapes):
            raise _other_model()
        if not math.isfinite(sums.norm):
            raise not_finite("sums")
        self.noise.hide(self.step, sums, records=records)
        self._shapes = shapes
        self.step += 1

    def _said(self, t: int) -> Told:
        """Tell a device of a step."""
        plan, t = self.noise.plan, self.noise._checked_step(t)
        keys = [self.noise._step_key(stream.name, t) for stream in plan.streams]
        return jax_noise.told_of(plan, t, keys)

    def _taken(self, step: int, run: Any, told: Sequence[Any]) -> Iterable[Any]:
        """The records of a step, which is the next one."""
        if np.asarray(run).tobytes() != self._run:
            expected, got = "a state of this run", "that of another"
            remedy = "Begin with privatizer.init(model)."
            raise InputError("state", expected=expected, got=got, remedy=remedy)
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

    def _first_state(self, kind: Kind | None, leaves: Sequence[Any]) -> State:
        """The state of the next step: noise of earlier ones is drawn again, and kept."""
        traced = _traced(leaves)

        def begin() -> tuple[Any, ...]:
            keys = jax_noise.words_of(self.noise.hash_keys)
            return np.int32(self.step), np.frombuffer(self._run, np.uint32), keys

        shapes = (_COUNT, _shape((_RUN_BYTES // 4,), np.uint32), _shape((2, 8), np.uint32))
        state = State(*_called(begin, shapes, traced=traced))
        if kind is None or not kind.rows:
            return state
        widened = [_shape(np.shape(leaf), _precision(leaf)) for leaf in leaves]
        parts = [part for part, _ in jax_noise.parts_of(widened)]

        def again(carried: Any) -> Any:
            t, kept = carried
            told = jax_noise.shapes_of(self.noise.plan)
            found = Told(*_called(lambda t: tuple(self._said(int(t))), told, t, traced=traced))
            return t + 1, tuple(
                jax_noise.advanced(kind, part, found, t, None, rows)[1]
                for part, rows in zip(parts, kept, strict=True)
            )

        carried = jax.numpy.int32(0), tuple(_nothing_kept(kind, part) for part in parts)
        if traced:
            carried = jax.lax.while_loop(lambda c: c[0] < state.step, again, carried)
        else:
            for _ in range(int(state.step)):
                carried = again(carried)
        return state._replace(kept=carried[1])


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


_shape = jax.ShapeDtypeStruct
_COUNT = _shape((), np.int32)


def _called(host: Callable[..., Any], shapes: Any, *values: Any, traced: bool) -> Any:
    """Return what ``host`` returns, of traced values when run: once, and before what needs it.

    Steps are in order without ordered callbacks, which are for one device alone: each needs the
    state that the one before returned."""
    if traced:
        return io_callback(host, shapes, *_of_one_model(*values))
    return jax.tree.map(jax.numpy.asarray, tuple(host(*values)))


def _of_several(axis_size: int, batched: Any, *values: Any) -> Any:
    expected, got = "one model", f"{axis_size} at once, by vmap: they would have one noise"
    raise InputError("sums", expected=expected, got=got)


_of_one_model = jax.custom_batching.custom_vmap(lambda *values: values)
_of_one_model.def_vmap(_of_several)


def _gathered(leaf: Any) -> Any:
    """``leaf`` on every device of a mesh with explicit axes; of other meshes XLA sees to it."""
    sharding = jax.typeof(leaf).sharding
    if not any(sharding.spec):
        return leaf
    return jax.sharding.reshard(leaf, sharding.update(spec=jax.sharding.PartitionSpec()))


def _placed(noisy: Any, leaf: Any) -> Any:
    """``noisy`` as ``leaf`` is on the devices of such a mesh."""
    sharding = jax.typeof(leaf).sharding
    return jax.sharding.reshard(noisy, sharding) if any(sharding.spec) else noisy


def _nothing_kept(kind: Kind, part: Part) -> Any:
    return jax.numpy.zeros((kind.rows, part.size), part.dtype)


def _precision(leaf: Any) -> Any:
    """Return the precision of sums for an array of the model: its own, or float32 for half."""
    double = jax.numpy.result_type(leaf) == np.float64
    return np.float64 if double else np.float32


def _other_model() -> InputError:
    expected = "the shapes and precision of the steps before"
    remedy = (
        "Noise of one design is for one model; for another one draw a new secret. Where sums are "
        "in another precision than the model, begin with privatizer.init(sums)."
    )
    return InputError("parameters", expected=expected, got="others", remedy=remedy)


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
    ``matrix_factorization_privatizer(matrix, stddev=1.0, prng_key=...)``. That does not stop after
    the T steps of the design, checks and records nothing, and has a key of 64 bits, all that JAX's
    generator takes; :meth:`Training.privatizer` does, and has 256. Numbers are float64 where
    ``jax_enable_x64`` is set, else float32.

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
