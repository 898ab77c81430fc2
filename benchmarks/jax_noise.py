"""Noise that JAX draws on its device beside its own normals: ``python -m benchmarks.jax_noise``.

Ratios to one ``jax.random.normal`` (Threefry, a key of 64 bits) of as many numbers in float32,
compiled, the two taken in turn in this process, after one warm-up of each: of the noise alone, with
the hash by which the record knows what it hides, and of whole updates of the privatizer, with four
bands too. ``of_node`` is the same noise by ``NodeNoise``, which computes on the processor with
numpy. Processor seconds of all threads where the device is a processor, and else seconds. This
needs the extra ``jax``.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.noise import plan_of
from noisedesign.adapters import jax_noise
from noisedesign.adapters.jax_privacy import Training
from noisedesign.noise import Claim, NodeNoise, Rule, Secret
from noisedesign.noise.filters import Banded, Filter, Fresh
from noisedesign.tasks import report
from noisedesign.tasks.report import Record

HORIZON = 10**6  # more steps than are taken
BANDS = np.array([1.0, -0.2, -0.2, -0.2])
FILTERS: dict[str, Filter] = {
    "independent": Fresh(),
    "banded, p = 4": Banded(np.broadcast_to(BANDS[:, None], (4, HORIZON))),
}


def source_of(filter_: Filter) -> NodeNoise:
    claim = Claim(noise_stddev=1.0, clip=1.0, rule=Rule(most=HORIZON))
    plan = replace(plan_of(filter_, horizon=HORIZON), claim=claim)
    return NodeNoise(plan, secret=Secret.new(), seeds={}, record=None, resume=False)


class Steps:
    """Noise of one step after another of a model of ``size`` numbers in float32."""

    def __init__(self, filter_: Filter, size: int) -> None:
        self.source, self.size, self.t = source_of(filter_), size, 0
        self.training = Training(self.source)
        privatizer = self.training.privatizer()
        self.sums = jnp.zeros(size)
        self.state = privatizer.init(self.sums)
        self.compiled = jax.jit(privatizer.update, donate_argnums=1)
        kind = jax_noise.kind_of(self.source.plan)
        assert kind is not None
        self.kind, self.part = kind, jax_noise.Part(0, size, np.dtype(np.float32))
        self.kept = jnp.zeros((kind.rows, size))
        self.out = np.empty(size, np.float32)
        self.keys = jax_noise.words_of(self.source.hash_keys)

    def draw(self) -> Any:
        told = self.training._said(self.t)
        noisy, self.kept = jax_noise.advanced(
            self.kind, self.part, told, np.int32(self.t), self.sums, self.kept
        )
        self.t += 1
        return noisy

    def hashed(self) -> Any:
        return jax_noise.hashed(self.part, self.keys, self.sums)

    def update(self) -> Any:
        noisy, self.state = self.compiled(self.sums, self.state, records=np.array([self.t]))
        self.t += 1
        return noisy

    def of_node(self) -> Any:
        self.source.step(self.t, out=self.out)
        self.t += 1
        return self.out


def seconds(function: Callable[[], Any]) -> float:
    clock = time.process_time if jax.default_backend() == "cpu" else time.perf_counter
    start = clock()
    jax.block_until_ready(function())
    return clock() - start


def over(function: Callable[[], Any], plain: Callable[[], Any], *, runs: int) -> float:
    """Median of ratios of runs taken in turn."""
    seconds(function), seconds(plain)
    return statistics.median(seconds(function) / seconds(plain) for _ in range(runs))


def table(*, size: int, runs: int) -> list[Record]:
    """A row a kind of noise."""
    key = jax.random.key(0)
    normal = jax.jit(lambda key: jax.random.normal(key, (size,)))
    rows = []
    for name, filter_ in FILTERS.items():
        found: Record = {"noise": name}
        for what in ("draw", "hashed", "update", "of_node"):
            steps = Steps(filter_, size)
            found[what] = over(getattr(steps, what), lambda: normal(key), runs=runs)
        rows.append(found)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=10**7, help="numbers of the model")
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    rows = table(size=arguments.size, runs=arguments.runs)
    title = f"over jax.random.normal of {arguments.size} numbers, on {jax.devices()[0]}"
    report.print_table(rows, list(rows[0]), title=title)


if __name__ == "__main__":
    main()
