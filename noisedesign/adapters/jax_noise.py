"""The noise of a node in JAX, drawn where the model is: bit for bit what
:meth:`noisedesign.noise.NodeNoise.step` gives.

ChaCha20 is in integers of 32 bits; normals and filters are in float64, one chunk of the model at a
time, so that memory is what a filter keeps and one chunk. Compilers change bits where they contract
a product and a sum (XLA does, openxla/xla issue 41579), divide by multiplying with a reciprocal, or
leave out a rounding to float32. So bits of a product, a divisor or a rounding pass an exclusive or
with ``zero``, which is 0 and an argument, and coefficients are arguments: a compiler knows neither.
Keys are arguments, too: nothing secret is in a compiled program."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from noisedesign.base.checks import Array
from noisedesign.noise import normals as by_numpy
from noisedesign.noise.filters import Banded, Buffered, Filter, Fresh, Moving, SignedBuffers
from noisedesign.noise.hidden import Hidden
from noisedesign.noise.plan import Plan

CHUNK = {"cpu": 1 << 15}  # numbers at a time, which stay in the caches of a processor
WIDE_CHUNK = 1 << 20  # elsewhere: few launches; some 200 MB of memory
TESTED = 1 << 16  # numbers that are compared with the processor's before a device is used
_TESTED_KEY, _TESTED_SCALE = bytes(range(32)), 1.25
_TESTED_BANDS = np.array([[0.9, 0.7], [-0.3, 0.0]])  # any that round
_BLOCK = 8  # words of 64 bits in a block of ChaCha20
_CONSTANTS = np.frombuffer(b"expand 32-byte k", dtype="<u4")
_ONE, _MANTISSA, _TWO_52 = (int(bits) for bits in (by_numpy._ONE, by_numpy._MANTISSA, 0x433 << 52))
_SQRT_HALF = int(by_numpy._SQRT_HALF)


class Kind(NamedTuple):
    """The form of the noise of a plan, of which a program is compiled."""

    filter: str
    rows: int
    pairs: tuple[int, ...]  # the first buffers of pairs that turn


class Told(NamedTuple):
    """Arrays of 32-bit integers that tell a program of a step."""

    keys: Any  # of ChaCha20, (streams, 8)
    numbers: Any  # float64 as two integers each: coefficients of streams, then of the filter
    zero: Any  # (2,) of 0


class Part(NamedTuple):
    """Numbers of one precision that follow one another in the model."""

    start: int
    size: int
    dtype: Any


def kind_of(plan: Plan) -> Kind | None:
    """The form of a plan's noise; None of noise that is not drawn step by step."""
    filter_ = plan.filter
    if plan.couplings is not None:
        return None
    if isinstance(filter_, SignedBuffers):
        pairs = tuple(np.flatnonzero(filter_.buffer_turns > 0).tolist())
        return Kind("buffers", filter_.rows, pairs)
    for name, kind in (("fresh", Fresh), ("banded", Banded), ("moving", Moving)):
        if isinstance(filter_, kind):
            return Kind(name, filter_.rows, ())
    return Kind("buffers", filter_.rows, ()) if isinstance(filter_, Buffered) else None


def told_of(plan: Plan, t: int, keys: Sequence[bytes]) -> Told:
    """Tell a program of step t, with the key of every stream."""
    numbers = [stream.coefficient for stream in plan.streams]
    numbers += _coefficients(plan.filter, t).tolist()
    return Told(words_of(keys), _halves(np.array(numbers)), np.zeros(2, np.uint32))


def _halves(numbers: Array) -> np.ndarray:
    return numbers.view(np.uint32).reshape(-1, 2)


def words_of(keys: Sequence[bytes]) -> np.ndarray:
    """Keys as integers, (keys, 8)."""
    return np.array([np.frombuffer(key, dtype="<u4") for key in keys], dtype=np.uint32)


def shapes_of(plan: Plan) -> Told:
    """Shapes of what :func:`told_of` gives."""
    blank = told_of(plan, 0, [bytes(by_numpy.KEY_BYTES)] * len(plan.streams))
    return Told(*(jax.ShapeDtypeStruct(array.shape, array.dtype) for array in blank))


def _coefficients(filter_: Filter, t: int) -> Array:
    """Numbers of a filter at step t, in the order in which :func:`_filtered` takes them."""
    if isinstance(filter_, Banded):
        bands, found = filter_.strategy_bands, np.zeros(filter_.rows + 1)
        for i in range(min(t, filter_.rows) + 1):
            found[i] = bands[i, t - i]
        return found
    if isinstance(filter_, Moving):
        return filter_.noising_coefficients
    if isinstance(filter_, Buffered):
        turns = filter_.buffer_turns if isinstance(filter_, SignedBuffers) else np.zeros(0)
        return np.concatenate(
            [filter_.strategy_diagonal[:1], filter_.buffer_scales, filter_.buffer_decays, turns]
        )
    return np.zeros(0)


# --- what programs are made of: within jax.enable_x64 ------------------------------------------


def _view(x: Any, dtype: Any) -> Any:
    return lax.bitcast_convert_type(x, dtype)


def _doubles(pairs: Any) -> Any:
    return _view(pairs, jnp.float64)


def _rotated(x: Any, by: int) -> Any:
    return (x << np.uint32(by)) | (x >> np.uint32(32 - by))


def _quarter(a: Any, b: Any, c: Any, d: Any) -> tuple[Any, Any, Any, Any]:
    """A quarter round (RFC 8439, section 2.1)."""
    for first, second in ((16, 12), (8, 7)):
        a = a + b
        d = _rotated(d ^ a, first)
        c = c + d
        b = _rotated(b ^ c, second)
    return a, b, c, d


def _words(key: Any, first: Any, blocks: int) -> Any:
    """64-bit words of so many blocks of the key stream, from block ``first`` on."""

    def full(value: Any) -> Any:
        return jnp.broadcast_to(value, (blocks,))

    counter = lax.iota(jnp.uint32, blocks) + first.astype(jnp.uint32)
    start = [*map(full, _CONSTANTS), *map(full, key), counter, *[full(np.uint32(0))] * 3]

    def double_round(_: Any, x: Any) -> Any:
        x = list(x)
        for turned in (0, 1):
            for i in range(4):
                at = [i, *(4 * row + (i + row * turned) % 4 for row in (1, 2, 3))]
                for place, value in zip(at, _quarter(*(x[k] for k in at)), strict=True):
                    x[place] = value
        return tuple(x)

    x = lax.fori_loop(0, 10, double_round, tuple(start))
    stream = jnp.stack([a + b for a, b in zip(x, start, strict=True)], axis=1)
    return _view(stream.reshape(blocks, _BLOCK, 2), jnp.uint64).reshape(-1)


class _Exact:
    """Keeps products apart from sums."""

    def __init__(self, zero: Any) -> None:
        self.long, self.short = _view(zero, jnp.uint64), zero[0]

    def __call__(self, x: Any) -> Any:
        return _view(_view(x, jnp.uint64) ^ self.long, jnp.float64)

    def rounded(self, x: Any, dtype: Any) -> Any:
        """``x`` in a precision, rounded also where it is widened again."""
        if dtype == jnp.float64:
            return self(x)
        return _view(_view(x.astype(dtype), jnp.uint32) ^ self.short, dtype)

    def divided(self, x: Any, by: Any) -> Any:
        """``x`` over one number for all, which a compiler does not see to be one."""
        return x / _view(_view(by, jnp.uint64) ^ (_view(x, jnp.uint64) & self.long), jnp.float64)

    def horner(self, coefficients: Sequence[float], x: Any) -> Any:
        total = self(x * coefficients[0])
        for coefficient in coefficients[1:-1]:
            total = self((total + coefficient) * x)
        return total + coefficients[-1]


def _uniform(words: Any) -> Any:
    whole = _view((words >> jnp.uint64(12)) | jnp.uint64(_TWO_52), jnp.float64)
    return (whole - (2.0**52 - 0.5)) * 2.0**-52


def _normals(words: Any, exact: _Exact) -> Any:
    """:func:`noisedesign.noise.normals.box_muller`, operation by operation."""
    pairs = words.reshape(-1, 2)
    first, bits = pairs[:, 0], pairs[:, 1]
    angle = exact((_uniform(bits) - 0.5) * by_numpy._QUARTER_TURN)
    square = exact(angle * angle)
    total = exact(exact(exact.horner(by_numpy._COS, square) * square) * square)
    half = exact(square * 0.5)
    lead = 1.0 - half
    along = lead + (total + ((1.0 - lead) - half))
    across = exact(exact(exact.horner(by_numpy._SIN, square) * square) * angle) + angle
    radius = _radius(first, exact)
    one = _view(along * radius, jnp.uint64) ^ ((bits & jnp.uint64(2)) << jnp.uint64(62))
    other = _view(across * radius, jnp.uint64)
    swapped = (one ^ other) & (jnp.uint64(0) - (bits & jnp.uint64(1)))
    both = jnp.stack([one ^ swapped, other ^ swapped], axis=1)
    return _view(both, jnp.float64).reshape(-1)


def _radius(words: Any, exact: _Exact) -> Any:
    whole = _view(_uniform(words), jnp.uint64) + jnp.uint64(_ONE - _SQRT_HALF)
    power = (whole >> jnp.uint64(52)).astype(jnp.int64).astype(jnp.float64) - 1023.0
    f = _view((whole & jnp.uint64(_MANTISSA)) + jnp.uint64(_SQRT_HALF), jnp.float64) - 1.0
    s = f / (f + 2.0)
    z = exact(s * s)
    halved = exact(exact(f * f) * 0.5)
    r = exact((exact(exact.horner(by_numpy._LOG, z) * z) + halved) * s)
    r = r + exact(power * by_numpy._LN2_LOW)
    return jnp.sqrt((((halved - r) - f) - exact(power * by_numpy._LN2_HIGH)) * 2.0)


def _words_at(key: Any, place: Any, count: int) -> Any:
    """Words ``place`` to ``place + count`` of a key's stream."""
    first, skipped = place // _BLOCK, place % _BLOCK
    found = _words(key, first, -(-(count + _BLOCK - 1) // _BLOCK))
    return lax.dynamic_slice(found, (skipped,), (count,))


def _drawn(told: Told, place: Any, count: int, exact: _Exact) -> Any:
    """White noise of a step from a place of the model on: all streams, in their order."""
    streams = told.keys.shape[0]
    coefficients = _doubles(told.numbers[:streams])
    first, skipped = place // _BLOCK, place % _BLOCK
    blocks = -(-(count + _BLOCK - 1) // _BLOCK)

    def one(k: Any, total: Any) -> Any:
        found = _normals(_words(told.keys[k], first, blocks), exact)
        return total + exact(found * coefficients[k])

    total = lax.fori_loop(0, streams, one, jnp.zeros(blocks * _BLOCK))
    return lax.dynamic_slice(total, (skipped,), (count,))


def _filtered(
    kind: Kind, numbers: Any, t: Any, white: Any, kept: Any, exact: _Exact
) -> tuple[Any, Any, Any]:
    """Noise of a step, the first row of ``kept`` that changes, and these rows, in float64."""
    rows = kind.rows

    def row(i: Any) -> Any:
        return lax.dynamic_index_in_dim(kept, i, keepdims=False).astype(jnp.float64)

    if kind.filter == "buffers":
        diagonal, scales, decays = numbers[0], numbers[1 : 1 + rows], numbers[1 + rows :]
        turns, noise = decays[rows:], white
        for i in range(rows):
            noise = noise - exact(row(i) * scales[i])
        moved = [exact(row(i) * decays[i]) for i in range(rows)]
        for i in kind.pairs:
            first, second = moved[i], moved[i + 1]
            moved[i] = first - exact(row(i + 1) * turns[i])
            moved[i + 1] = exact(row(i) * turns[i]) + second
        return exact.divided(noise, diagonal), 0, [one + noise for one in moved]
    if kind.filter == "fresh":
        return white, 0, []
    moving = kind.filter == "moving"
    draw = exact.rounded(white, kept.dtype).astype(jnp.float64) if moving else white

    def one(i: Any, total: Any) -> Any:
        product = exact(row((t - i) % rows) * numbers[i])
        return total + product if moving else total - product

    noise = exact(draw * numbers[0]) if moving else white
    if rows:
        noise = lax.fori_loop(1, rows + 1, one, noise)
    noise = noise if moving else exact.divided(noise, numbers[0])
    return noise, t % max(rows, 1), [draw if moving else noise] if rows else []


def _in_chunks(part: Part, chunk: int, step: Callable[[Any, Any, Any], Any], carried: Any) -> Any:
    """``step(place, new, carried)`` for one chunk after another: the last one begins where it has
    room, and of its numbers those are ``new`` that no chunk had before."""
    width = min(chunk, part.size)
    count = -(-part.size // width)

    def one(k: Any, carried: Any) -> Any:
        place = jnp.minimum(k * width, part.size - width)
        return step(place, place + lax.iota(jnp.int64, width) >= k * width, carried)

    return lax.fori_loop(jnp.int64(0), jnp.int64(count), one, carried)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _advanced(
    kind: Kind, part: Part, chunk: int, told: Told, t: Any, sums: Any, kept: Any
) -> tuple[Any, Any]:
    """Sums with the noise of step t, or None of None, and what is kept of it."""
    exact, width = _Exact(told.zero), min(chunk, part.size)
    numbers = _doubles(told.numbers[told.keys.shape[0] :])

    def step(place: Any, new: Any, carried: Any) -> Any:
        sums, kept = carried
        white = _drawn(told, part.start + place, width, exact)
        here = lax.dynamic_slice(kept, (0, place), (kind.rows, width))
        noise, first, rows = _filtered(kind, numbers, t, white, here, exact)
        for i, row in enumerate(rows):
            at = (jnp.asarray(first + i, dtype=jnp.int64), place)
            before = lax.dynamic_slice(kept, at, (1, width))[0]
            after = jnp.where(new, exact.rounded(row, kept.dtype), before)
            kept = lax.dynamic_update_slice(kept, after[None], at)
        if sums is not None:
            before = lax.dynamic_slice(sums, (place,), (width,))
            after = jnp.where(new, before + exact.rounded(noise, sums.dtype), before)
            sums = lax.dynamic_update_slice(sums, after, (place,))
        return sums, kept

    found: tuple[Any, Any] = _in_chunks(part, chunk, step, (sums, kept))
    return found


@functools.partial(jax.jit, static_argnums=(0, 1))
def _hashed(part: Part, chunk: int, keys: Any, sums: Any) -> tuple[Any, Any]:
    """Both keyed sums of a part, (2, 2), and its squared norm, (2,), in 32-bit integers."""
    width, wide = min(chunk, part.size), part.dtype == np.float64
    low, half = jnp.uint64(2**32 - 1), jnp.uint64(32)

    def step(place: Any, new: Any, carried: Any) -> Any:
        first, second, squares = carried
        numbers = jnp.where(new, lax.dynamic_slice(sums, (place,), (width,)), 0)
        bits = _view(numbers, jnp.uint32).reshape(-1).astype(jnp.uint64)
        words = _words_at(keys[int(wide)], (part.start + place) * (1 + wide), bits.size)
        first += jnp.sum((words & low) * bits, dtype=jnp.uint64)
        second += jnp.sum((words >> half) * bits, dtype=jnp.uint64)
        doubles = numbers.astype(jnp.float64)
        return first, second, squares + doubles * doubles

    start = (jnp.uint64(0), jnp.uint64(0), jnp.zeros(width))
    first, second, squares = _in_chunks(part, chunk, step, start)
    return _view(jnp.stack([first, second]), jnp.uint32), _view(_sum(squares), jnp.uint32)


def _sum(x: Any) -> Any:
    """Sum float64 by halves: XLA's own sum ends the process (jaxlib 0.10.2 on processors, where
    YNNPACK computes sums from some 8000 numbers on)."""
    while x.size > 1:
        x = jnp.pad(x, (0, x.size % 2))
        x = x[: x.size // 2] + x[x.size // 2 :]
    return x[0]


# --- what is called, in any precision of JAX's ------------------------------------------------


def advanced(
    kind: Kind, part: Part, told: Told, t: Any, sums: Any, kept: Any, *, chunk: int | None = None
) -> tuple[Any, Any]:
    """Sums of a part with the noise of step t, and what is kept of it, (rows, size); sums of None
    stay None."""
    if not part.size:
        return sums, kept
    with jax.enable_x64(True):
        found: tuple[Any, Any] = _advanced(kind, part, chunk or _chunk(), told, t, sums, kept)
        return found


def hashed(part: Part, keys: Any, sums: Any, *, chunk: int | None = None) -> tuple[Any, Any]:
    """Hash what the noise of a part hides, for :func:`hidden_of`, by these ``keys``."""
    if not part.size:
        return jnp.zeros((2, 2), jnp.uint32), jnp.zeros(2, jnp.uint32)
    with jax.enable_x64(True):
        found: tuple[Any, Any] = _hashed(part, chunk or _chunk(), keys, sums)
        return found


def hidden_of(part: Part, sums: Any, square: Any) -> Hidden:
    """The numbers of :func:`hashed`, on the host."""
    first, second = (int(number) for number in np.asarray(sums).view(np.uint64).ravel())
    norm = float(np.sqrt(np.asarray(square).view(np.float64)[0]))
    wide = part.dtype == np.float64
    return Hidden(0 if wide else part.size, part.size if wide else 0, first, second, norm)


def parts_of(leaves: Sequence[Any]) -> list[tuple[Part, list[int]]]:
    """Leaves of a model that follow one another in one precision, and their numbers."""
    found: list[tuple[Part, list[int]]] = []
    start = 0
    for at, leaf in enumerate(leaves):
        size, dtype = int(np.prod(np.shape(leaf), dtype=int)), np.dtype(leaf.dtype)
        if found and found[-1][0].dtype == dtype:
            before, numbers = found.pop()
            found.append((before._replace(size=before.size + size), [*numbers, at]))
        else:
            found.append((Part(start, size, dtype), [at]))
        start += size
    return found


def _chunk() -> int:
    return CHUNK.get(jax.default_backend(), WIDE_CHUNK)


def works() -> bool:
    """Whether the default device draws the bits of the processor: where not, a warning says it."""
    return _works(jax.default_backend())


@functools.cache
def _works(platform: str) -> bool:
    part, filter_ = Part(3, TESTED, np.dtype(np.float64)), Banded(_TESTED_BANDS)
    white, kept = np.empty((2, TESTED))
    for key, out in ((_TESTED_KEY, white), (_TESTED_KEY[::-1], kept)):
        by_numpy.Normals(key).fill(out, start=part.start)
    exact = filter_.step(1, lambda _: white * _TESTED_SCALE, kept[None].copy())
    numbers = np.array([_TESTED_SCALE, *_coefficients(filter_, 1)])
    told = Told(words_of([_TESTED_KEY]), _halves(numbers), np.zeros(2, np.uint32))
    try:
        with jax.ensure_compile_time_eval(), jax.enable_x64(True):
            given = told, np.int32(1), jnp.zeros(TESTED), jnp.asarray(kept[None])
            found = np.asarray(advanced(Kind("banded", 1, ()), part, *given)[0])
        why = f"{np.count_nonzero(found != exact)} of {TESTED} numbers are others"
        if found.tobytes() == exact.tobytes():
            return True
    except Exception as error:  # of a device without float64, whatever it raises
        why = f"{type(error).__name__}: {error}"
    said = f"Noise is drawn on the host, as bits of the device {platform!r} are not its own"
    warnings.warn(f"{said}: {why}", stacklevel=5)
    return False
