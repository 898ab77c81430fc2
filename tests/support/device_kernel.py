"""The kernels of noise without a GPU, in a process of their own:

    python -m tests.support.device_kernel interpret KIND...    # under TRITON_INTERPRET=1
    python -m tests.support.device_kernel ptx 80 90            # instructions of these GPUs

It prints JSON: what has other bits than the processor's, or the operations on float64."""

from __future__ import annotations

import collections
import json
import re
import sys

import numpy as np
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from noisedesign.noise.device import kernel
from noisedesign.noise.hidden import WRAP, HashKeys, hidden
from noisedesign.noise.normals import Normals
from tests.support import noise_plans

KEYS = bytes(range(32)), bytes(range(7, 39))
FACTORS = (0.5, -1.25)
STARTS = (0, 2**34 - 77)  # the second in an odd place before block 2^31
SIZE = 600


def white(step: int, start: int) -> np.ndarray:
    total = np.zeros(SIZE)
    for key, by in zip(KEYS, FACTORS, strict=True):
        drawn = np.empty(SIZE)
        Normals(bytes([step]) + key[1:]).fill(drawn, start=start)
        total += drawn * by
    return total


def terms(step: int) -> list[tuple[bytes, float]]:
    return [(bytes([step]) + key[1:], by) for key, by in zip(KEYS, FACTORS, strict=True)]


def different(kinds: list[str]) -> list[str]:
    """Filters, with the step, the place and the precision, which alternate, and hashes."""
    kernel.BLOCKS = 128
    there, found = kernel.Kernel(torch.device("cpu")), []
    for at, kind in enumerate(kinds):
        filter_, start = noise_plans.filters()[kind], STARTS[at % 2]
        dtype = (np.float32, np.float64)[at % 2]
        kept = np.zeros((filter_.rows, SIZE), dtype)
        rows = torch.from_numpy(kept.copy())
        for t in range(4):
            exact = filter_.step(t, lambda s, first=start: white(s, first), kept).astype(dtype)
            noise = there.step(filter_, t, terms, start, SIZE, rows).to(rows.dtype).numpy()
            if noise.tobytes() != exact.tobytes() or rows.numpy().tobytes() != kept.tobytes():
                found.append(f"{kind}, step {t}, from {start}, {np.dtype(dtype)}")
    keys = HashKeys(*KEYS)
    for dtype in (np.float32, np.float64):
        sums = np.random.default_rng(0).standard_normal(SIZE).astype(dtype)
        known = hidden([sums], keys=keys, start=13)
        pair, norm = there.hidden(torch.from_numpy(sums), keys, 13)
        if [word % WRAP for word in pair.tolist()] != [known.first, known.second]:
            found.append(f"hash, {np.dtype(dtype)}")
        if not np.isclose(float(norm), known.norm, rtol=1e-12):
            found.append(f"norm, {np.dtype(dtype)}")
    return found


def operations(capabilities: list[int]) -> dict[str, int]:
    """Operations on float64 and float32 in PTX of all kernels, and how many there are."""
    found: collections.Counter[str] = collections.Counter()
    whole = ("lead", "size", "stride", "streams", "rows", "count", "slot")
    known = dict.fromkeys(whole, "i32") | {"first": "i64", "keys": "*i32", "key": "*i32"}
    known |= dict.fromkeys(("factors", "taps", "table"), "*fp64") | {"sums": "*i64", "bits": "*i32"}
    known["squares"] = "*fp64"
    for capability in capabilities:
        target = GPUTarget("cuda", capability, 32)
        cases = [(kernel.noise_kernel, kind, of) for kind in range(4) for of in ("*fp32", "*fp64")]
        for made, kind, of in [*cases, (kernel.hash_kernel, None, "*fp32")]:
            types = known | {"out": of, "kept": of}
            fixed = {"BLOCKS": kernel.BLOCKS} | ({} if kind is None else {"KIND": kind})
            signature = {name: types.get(name, "constexpr") for name in made.arg_names}
            source = ASTSource(fn=made, signature=signature, constexprs=fixed)
            ptx = triton.compile(source, target=target, options=kernel.LAUNCH).asm["ptx"]
            found.update(
                re.findall(r"\b((?:fma|mad|mul|add|sub|div|sqrt|rcp)[a-z.]*\.f(?:32|64))", ptx)
            )
    return dict(found)


if __name__ == "__main__":
    of, *rest = sys.argv[1:]
    print(json.dumps(different(rest) if of == "interpret" else operations([*map(int, rest)])))
