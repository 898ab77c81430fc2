"""What a time depends on besides the program: versions, BLAS, threads, processor.

Small matrices go on one thread: a second one waits for the first longer than it helps.
"""

from __future__ import annotations

import os
import platform
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController, threadpool_info

from noisedesign.base.version import version

PROCESSOR_FILE = Path("/proc/cpuinfo")
"""Where Linux names its processors; the name that Python knows there is that of the family."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The machine and the programs on it, in plain values.

    ``blas`` is what NumPy calls and ``threads`` the most threads it runs; ``cores`` are those this
    process may use. No host name: it says nothing about a time.
    """

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
    """Within it BLAS runs on one thread; for matrices of some hundred rows or fewer."""
    limited: AbstractContextManager[object] = _pools().limit(limits=1, user_api="blas")
    return limited
