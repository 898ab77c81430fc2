"""Draws, filter and hash of a piece of the model in one launch each, by Triton, which torch brings
along on CUDA: nothing is compiled when this package is installed.

``enable_fp_fusion=False`` keeps products and sums apart: LLVM would make one FMA of the two, which
rounds once. All constants come from a table, so that none is rounded to float32 on its way."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from noisedesign.noise import normals
from noisedesign.noise.device import eager
from noisedesign.noise.device.eager import Eager, Term, Terms
from noisedesign.noise.filters import Banded, Buffered, Fresh, Moving, Recursion
from noisedesign.noise.hidden import HashKeys

BLOCKS = 128  # blocks of ChaCha20 of a program, one a thread of four warps
LAUNCH: dict[str, Any] = {"num_warps": 4, "enable_fp_fusion": False}
ALIKE = ["first", "lead", "size", "stride", "streams", "rows", "count", "slot"]
"""Arguments of the kernels that are not worth a kernel of their own where they are 1 or even."""
REST = (normals._QUARTER_TURN, normals._LN2_LOW, normals._LN2_HIGH, 2.0**52 - 0.5)
TABLE = (*normals._COS, *normals._SIN, *normals._LOG, *REST)
_SIN_AT = tl.constexpr(len(normals._COS))
_LOG_AT = tl.constexpr(len(normals._COS) + len(normals._SIN))
_REST_AT = tl.constexpr(len(normals._COS) + len(normals._SIN) + len(normals._LOG))
_SHIFTED = tl.constexpr(eager.ONE - eager.SQRT_HALF)
_MANTISSA, _TWO_52 = tl.constexpr(eager.MANTISSA), tl.constexpr(eager.TWO_52)
_SQRT_HALF, _HALF = tl.constexpr(eager.SQRT_HALF), tl.constexpr(eager.HALVES)
_C0, _C1, _C2, _C3 = (tl.constexpr(word) for word in eager.CONSTANTS)
_DOUBLE_ROUNDS = tl.constexpr(eager.ROUNDS // 2)
WHITE, BANDED, MOVING, BUFFERED = range(4)
_BANDED, _MOVING, _BUFFERED = tl.constexpr(BANDED), tl.constexpr(MOVING), tl.constexpr(BUFFERED)


@triton.jit
def _rotated(x, by: tl.constexpr):
    return (x << by) | (x >> (32 - by))


@triton.jit
def _quarter(a, b, c, d):
    a = a + b
    d = _rotated(d ^ a, 16)
    c = c + d
    b = _rotated(b ^ c, 12)
    a = a + b
    d = _rotated(d ^ a, 8)
    c = c + d
    b = _rotated(b ^ c, 7)
    return a, b, c, d


@triton.jit
def _word(low, high):
    return low.to(tl.uint64) | (high.to(tl.uint64) << 32)


@triton.jit
def _words(block, key):
    """The eight 64-bit words of blocks of the key stream with nonce 0 (RFC 8439)."""
    counter = block.to(tl.uint32)
    zero = counter ^ counter
    k0 = zero + tl.load(key + 0).to(tl.uint32)
    k1 = zero + tl.load(key + 1).to(tl.uint32)
    k2 = zero + tl.load(key + 2).to(tl.uint32)
    k3 = zero + tl.load(key + 3).to(tl.uint32)
    k4 = zero + tl.load(key + 4).to(tl.uint32)
    k5 = zero + tl.load(key + 5).to(tl.uint32)
    k6 = zero + tl.load(key + 6).to(tl.uint32)
    k7 = zero + tl.load(key + 7).to(tl.uint32)
    x0, x1, x2, x3 = zero + _C0, zero + _C1, zero + _C2, zero + _C3
    x4, x5, x6, x7, x8, x9, x10, x11 = k0, k1, k2, k3, k4, k5, k6, k7
    x12, x13, x14, x15 = counter, zero, zero, zero
    for _ in range(_DOUBLE_ROUNDS):
        x0, x4, x8, x12 = _quarter(x0, x4, x8, x12)
        x1, x5, x9, x13 = _quarter(x1, x5, x9, x13)
        x2, x6, x10, x14 = _quarter(x2, x6, x10, x14)
        x3, x7, x11, x15 = _quarter(x3, x7, x11, x15)
        x0, x5, x10, x15 = _quarter(x0, x5, x10, x15)
        x1, x6, x11, x12 = _quarter(x1, x6, x11, x12)
        x2, x7, x8, x13 = _quarter(x2, x7, x8, x13)
        x3, x4, x9, x14 = _quarter(x3, x4, x9, x14)
    return (
        _word(x0 + _C0, x1 + _C1),
        _word(x2 + _C2, x3 + _C3),
        _word(x4 + k0, x5 + k1),
        _word(x6 + k2, x7 + k3),
        _word(x8 + k4, x9 + k5),
        _word(x10 + k6, x11 + k7),
        _word(x12 + counter, x13),
        _word(x14, x15),
    )


@triton.jit
def _in_order(a, b, c, d, e, f, g, h, BLOCKS: tl.constexpr):
    """One array of eight numbers a block."""
    even = tl.join(tl.join(a, e), tl.join(c, g))
    odd = tl.join(tl.join(b, f), tl.join(d, h))
    return tl.reshape(tl.join(even, odd), (8 * BLOCKS,))


@triton.jit
def _uniform(words, table):
    whole = (words >> 12) | _TWO_52
    shifted = whole.to(tl.float64, bitcast=True) - tl.load(table + _REST_AT + 3)
    return shifted * 2.220446049250313e-16  # 2^-52


@triton.jit
def _horner(x, table, FIRST: tl.constexpr, LAST: tl.constexpr):
    total = x * tl.load(table + FIRST)
    for at in tl.static_range(FIRST + 1, LAST):
        total = (total + tl.load(table + at)) * x
    return total + tl.load(table + LAST)


@triton.jit
def _pair(first, second, table):
    """Two normals from two words, as box_muller of noisedesign.noise.normals."""
    angle = (_uniform(second, table) - 0.5) * tl.load(table + _REST_AT)
    square = angle * angle
    total = _horner(square, table, 0, _SIN_AT - 1) * square * square
    half = square * 0.5
    lead = 1.0 - half
    along = lead + (total + ((1.0 - lead) - half))
    across = _horner(square, table, _SIN_AT, _LOG_AT - 1) * square * angle + angle
    whole = _uniform(first, table).to(tl.uint64, bitcast=True) + _SHIFTED
    power = (whole >> 52).to(tl.int64).to(tl.float64) - 1023.0
    f = ((whole & _MANTISSA) + _SQRT_HALF).to(tl.float64, bitcast=True) - 1.0
    s = f / (f + 2.0)
    z = s * s
    halved = f * f * 0.5
    r = (_horner(z, table, _LOG_AT, _REST_AT - 1) * z + halved) * s
    r = r + power * tl.load(table + _REST_AT + 1)
    halved = ((halved - r) - f) - power * tl.load(table + _REST_AT + 2)
    radius = tl.sqrt(halved * 2.0)
    one = (along * radius).to(tl.uint64, bitcast=True) ^ ((second & 2) << 62)
    other = (across * radius).to(tl.uint64, bitcast=True)
    swapped = (one ^ other) & (0 - (second & 1))
    return (one ^ swapped).to(tl.float64, bitcast=True), (other ^ swapped).to(
        tl.float64, bitcast=True
    )


@triton.jit(do_not_specialize=ALIKE)
def noise_kernel(
    out,
    kept,
    keys,
    factors,
    taps,
    table,
    first,
    lead,
    size,
    stride,
    streams,
    rows,
    count,
    slot,
    KIND: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """Noise at ``size`` places from ``lead`` after block ``first`` on, from what is kept."""
    program, stride = tl.program_id(0).to(tl.int64), stride.to(tl.int64)
    block = program * BLOCKS + tl.arange(0, BLOCKS) + first
    noise = tl.full((8 * BLOCKS,), -0.0, tl.float64)  # to which adding changes no bit
    for stream in range(streams):
        w0, w1, w2, w3, w4, w5, w6, w7 = _words(block, keys + 8 * stream)
        a, b = _pair(w0, w1, table)
        c, d = _pair(w2, w3, table)
        e, f = _pair(w4, w5, table)
        g, h = _pair(w6, w7, table)
        drawn = _in_order(a, b, c, d, e, f, g, h, BLOCKS)
        noise = noise + drawn * tl.load(factors + stream)
    at = program * (8 * BLOCKS) + tl.arange(0, 8 * BLOCKS) - lead
    here = (at >= 0) & (at < size)
    if KIND == _BANDED:
        for i in range(1, count + 1):
            row = tl.where(slot < i, slot - i + rows, slot - i)
            before = tl.load(kept + row * stride + at, mask=here, other=0.0).to(tl.float64)
            noise = noise - before * tl.load(taps + i)
        noise = noise / tl.load(taps)
        if rows > 0:
            tl.store(kept + slot * stride + at, noise.to(kept.dtype.element_ty), mask=here)
    if KIND == _MOVING:
        draw = noise.to(kept.dtype.element_ty)
        noise = draw.to(tl.float64) * tl.load(taps)
        for i in range(1, count + 1):
            row = tl.where(slot < i, slot - i + rows, slot - i)
            before = tl.load(kept + row * stride + at, mask=here, other=0.0).to(tl.float64)
            noise = noise + before * tl.load(taps + i)
        if rows > 0:
            tl.store(kept + slot * stride + at, draw, mask=here)
    if KIND == _BUFFERED:  # taps: diagonal, scales, decays, turns
        for i in range(rows):
            buffer = tl.load(kept + i * stride + at, mask=here, other=0.0).to(tl.float64)
            noise = noise - buffer * tl.load(taps + 1 + i)
        for i in range(rows):
            decay, turn = tl.load(taps + 1 + rows + i), tl.load(taps + 1 + 2 * rows + i)
            place = kept + i * stride + at
            if turn >= 0:  # those below were moved with the first of their pair
                buffer = tl.load(place, mask=here, other=0.0).to(tl.float64)
                moved = buffer * decay
                if turn > 0:
                    second = tl.load(place + stride, mask=here, other=0.0).to(tl.float64)
                    turned = buffer * turn + second * decay + noise
                    moved = moved - second * turn
                    tl.store(place + stride, turned.to(kept.dtype.element_ty), mask=here)
                tl.store(place, (moved + noise).to(kept.dtype.element_ty), mask=here)
        noise = noise / tl.load(taps)
    if KIND != _BANDED or rows == 0:
        tl.store(out + at, noise.to(out.dtype.element_ty), mask=here)


@triton.jit(do_not_specialize=ALIKE)
def hash_kernel(sums, squares, bits, key, first, lead, size, BLOCKS: tl.constexpr):
    """Both keyed sums of the 32-bit numbers of a program, modulo 2^64, and that of squares."""
    program = tl.program_id(0).to(tl.int64)
    block = program * BLOCKS + tl.arange(0, BLOCKS) + first
    a, b, c, d, e, f, g, h = _words(block, key)
    words = _in_order(a, b, c, d, e, f, g, h, BLOCKS)
    at = program * (8 * BLOCKS) + tl.arange(0, 8 * BLOCKS) - lead
    here = (at >= 0) & (at < size)
    found = tl.load(bits + at, mask=here, other=0).to(tl.uint32, bitcast=True)
    numbers = found.to(tl.uint64)
    low, high = (words & _HALF) * numbers, (words >> 32) * numbers
    tl.store(sums + 2 * program, tl.sum(low.to(tl.int64, bitcast=True), 0))
    tl.store(sums + 2 * program + 1, tl.sum(high.to(tl.int64, bitcast=True), 0))
    real = found.to(tl.float32, bitcast=True).to(tl.float64)  # means something in float32 alone
    tl.store(squares + program, tl.sum(real * real, 0))


class Kernel(Eager):
    """Draws on one device that Triton compiles for."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._table = torch.tensor(TABLE, dtype=torch.float64, device=device)
        self._unused = torch.zeros(1, dtype=torch.float64, device=device)
        self._sent: dict[bytes, Tensor] = {}

    def white(self, terms: list[Term], start: int, size: int) -> Tensor:
        noise = torch.empty(size, dtype=torch.float64, device=self.device)
        self._launch(noise, self._unused, terms, start, WHITE, (), 0, 0)
        return noise

    def step(
        self, filter_: Recursion, t: int, terms: Terms, start: int, size: int, kept: Tensor
    ) -> Tensor:
        rows = filter_.rows
        count, slot = min(t, rows), t % rows if rows else 0
        match filter_:
            case Banded() if rows:
                bands = filter_.strategy_bands
                taps = [bands[i, t - i] for i in range(count + 1)]
                self._launch(kept[slot], kept, terms(t), start, BANDED, taps, count, slot)
                return kept[slot]
            case Moving() if rows:
                taps, kind = list(filter_.noising_coefficients), MOVING
            case Fresh():
                noise = torch.empty(size, dtype=kept.dtype, device=self.device)
                self._launch(noise, self._unused, terms(t), start, WHITE, (), 0, 0)
                return noise
            case Buffered():
                turns = getattr(filter_, "buffer_turns", np.zeros(rows))
                taps = [filter_.strategy_diagonal[0], *filter_.buffer_scales]
                taps, kind = [*taps, *filter_.buffer_decays, *turns], BUFFERED
                if t == 0:
                    kept.zero_()
            case _:
                return super().step(filter_, t, terms, start, size, kept)
        noise = torch.empty(size, dtype=kept.dtype, device=self.device)
        self._launch(noise, kept, terms(t), start, kind, taps, count, slot)
        return noise

    def hidden(self, flat: Tensor, keys: HashKeys, start: int) -> tuple[Tensor, Tensor]:
        wide = flat.dtype == torch.float64
        bits, key = flat.view(torch.int32), keys.wide if wide else keys.narrow
        first, lead = divmod((1 + wide) * start, eager.WORDS)
        grid = triton.cdiv(lead + len(bits), 8 * BLOCKS)
        sums = torch.empty((grid, 2), dtype=torch.int64, device=self.device)
        squares = torch.empty(grid, dtype=torch.float64, device=self.device)
        with torch.cuda.device_of(bits):
            hash_kernel[(grid,)](
                sums, squares, bits, self._on(key), first, lead, len(bits), BLOCKS=BLOCKS, **LAUNCH
            )
        return sums.sum(0), eager.norm(flat) if wide else squares.sum().sqrt()

    def _launch(
        self,
        out: Tensor,
        kept: Tensor,
        terms: list[Term],
        start: int,
        kind: int,
        taps: Sequence[float],
        count: int,
        slot: int,
    ) -> None:
        first, lead = divmod(start, eager.WORDS)
        keys = self._on(b"".join(key for key, _ in terms))
        factors = self._on(struct.pack(f"<{len(terms)}d", *(by for _, by in terms))).view(
            torch.float64
        )
        numbers = self._on(struct.pack(f"<{max(1, len(taps))}d", *(taps or (0.0,)))).view(
            torch.float64
        )
        rows = len(kept) if kept.dim() == 2 else 0
        stride = kept.stride(0) if rows else 0
        grid = triton.cdiv(lead + len(out), 8 * BLOCKS)
        with torch.cuda.device_of(out):
            noise_kernel[(grid,)](
                out,
                kept,
                keys,
                factors,
                numbers,
                self._table,
                first,
                lead,
                len(out),
                stride,
                len(terms),
                rows,
                count,
                slot,
                KIND=kind,
                BLOCKS=BLOCKS,
                **LAUNCH,
            )

    def _numbers(self, numbers: Sequence[float]) -> Tensor:
        return self._on(struct.pack(f"<{len(numbers)}d", *numbers)).view(torch.float64)

    def _on(self, sent: bytes) -> Tensor:
        """Bytes on the device as int32; those of the last few launches are there."""
        found = self._sent.pop(sent, None)
        if found is None:
            found = torch.frombuffer(bytearray(sent), dtype=torch.int32).to(self.device)
        self._sent[sent] = found
        while len(self._sent) > 8:
            self._sent.pop(next(iter(self._sent)))
        return found
