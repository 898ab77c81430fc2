"""The machine that a time was taken on: versions, BLAS, threads, processor."""

from __future__ import annotations

import os
import platform
import time
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController, threadpool_info

from noisedesign.base.version import version

PROCESSOR_FILE = Path("/proc/cpuinfo")  # the file in which Linux names its processors
PROBE = 256  # size of the product that is timed; a larger one is interrupted by other programs


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The machine and the programs on it, in plain values, without the host name."""

    noisedesign: str
    python: str
    numpy: str
    blas: str
    threads: int
    processor: str
    cores: int
    platform: str

    def __str__(self) -> str:
        cores = f"{self.cores} core{'s' if self.cores > 1 else ''}"
        threads = f"{self.threads} BLAS thread{'s' if self.threads > 1 else ''}"
        return (
            f"noisedesign {self.noisedesign}, Python {self.python}, NumPy {self.numpy}, "
            f"{self.blas}, {threads}, {cores} of {self.processor}, {self.platform}"
        )

    def record(self) -> dict[str, Any]:
        return asdict(self)


FIELDS = tuple(field.name for field in fields(Machine))


def this_machine() -> Machine:
    """The machine this process runs on."""
    loaded = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    # Solvers bring libraries of their own, which come and go with what this process has imported.
    home = str(Path(np.__file__).resolve().parent)  # of an environment that may be a link
    pools = [
        pool for pool in loaded if str(Path(pool["filepath"]).resolve()).startswith(home)
    ] or loaded
    names = sorted({f"{pool['internal_api']} {pool['version']}" for pool in pools})
    return Machine(
        noisedesign=version(),
        python=platform.python_version(),
        numpy=np.__version__,
        blas=" and ".join(names) or "an unknown BLAS",
        threads=max((int(pool["num_threads"]) for pool in pools), default=1),
        processor=_processor(),
        cores=cores(),
        platform=f"{platform.system()} {platform.machine()}",
    )


def cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor() -> str:
    try:
        lines = PROCESSOR_FILE.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


@cache
def _pools() -> ThreadpoolController:
    """The BLAS libraries loaded with NumPy and SciPy, looked up once: that takes milliseconds."""
    return ThreadpoolController()


def one_thread() -> AbstractContextManager[object]:
    """Run BLAS on one thread within this: small matrices gain nothing by a second."""
    limited: AbstractContextManager[object] = _pools().limit(limits=1, user_api="blas")
    return limited


def seconds_of_product(size: int) -> float:
    """Seconds that one product of two matrices of that size takes here, about."""
    return _product_of_probes() * (size / PROBE) ** 3


@cache
def _product_of_probes() -> float:
    probe, seconds = np.ones((PROBE, PROBE)), []
    for _ in range(10):
        started = time.perf_counter()
        probe @ probe
        seconds.append(time.perf_counter() - started)
    return min(seconds)
