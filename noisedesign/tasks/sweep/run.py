"""A grid of problems into one table: what is missing from it is computed here or elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError
from noisedesign.base.shown import Shown
from noisedesign.files.results_file import open_results
from noisedesign.files.sweep_file import Sweep, SweepRow
from noisedesign.tasks import rows
from noisedesign.tasks.report import Record
from noisedesign.tasks.rows import Progress
from noisedesign.tasks.sweep.cluster import on_cluster
from noisedesign.tasks.sweep.rows import TYPES, columns_of, in_turn
from noisedesign.tasks.sweep.workers import in_processes

TIMEOUT_SECONDS = 5.0
"""A scheduler on the same network answers in milliseconds, one that was just started in seconds."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Summary(Shown):
    """What came of a sweep: of its ``rows``, how many were ``skipped`` since the table had them,
    how many were ``run``, and how many are ``unsolved`` now, whenever they were run."""

    output: Path
    rows: int
    skipped: int
    run: int
    unsolved: int


def sweep(
    plan: Sweep,
    *,
    output: str | Path,
    jobs: int = 1,
    cluster: str | None = None,
    timeout: float = TIMEOUT_SECONDS,
    retry: bool = False,
    progress: Progress | None = None,
) -> Summary:
    """Compute the rows of ``plan`` that the table at ``output`` does not have yet.

    Every row is on the disk as soon as it is finished, so that whatever ends this, the next call
    goes on from there. Rows of other grids with the same columns are left as they are.

    Args:
        output: a .csv or .parquet file; columns are its version, the key of the row, the swept
            keys, what was asked for, and :data:`noisedesign.tasks.rows.COLUMNS`.
        jobs: processes of this machine; 1 is this process.
        cluster: address of a Dask scheduler, as "tcp://host:port", in place of ``jobs``.
        timeout: seconds to wait for that scheduler and its first worker.
        retry: run the rows again that were not solved, but for local optima, which stay so.
        progress: called with the number of rows that are finished, and that of all.

    Raises:
        InputError: naming ``jobs``, ``cluster``, ``timeout`` or ``output``, which another process
            may have open.
        OSError: the table cannot be written any more, the cluster or all workers are lost; what
            was finished is kept.
    """
    jobs = _checks.positive_int(jobs, field="jobs")
    timeout = _checks.real(timeout, field="timeout", low=0)
    if cluster is not None and jobs > 1:
        raise InputError("jobs", expected="1 beside a cluster", got=str(jobs))
    with open_results(output, columns=columns_of(plan.keys), types=TYPES) as table:
        found, done = rows.kept(
            plan.rows,
            lambda left: _records(left, jobs, cluster, timeout),
            table=table,
            retry=retry,
            progress=progress,
        )
    total = len(plan.rows)
    unsolved = sum(not found[row.key]["solved"] for row in plan.rows)
    return Summary(output=table.path, rows=total, skipped=done, run=total - done, unsolved=unsolved)


def _records(
    left: list[SweepRow], jobs: int, cluster: str | None, timeout: float
) -> Iterator[Record]:
    if cluster is not None and left:
        return on_cluster(left, address=cluster, timeout=timeout)
    if jobs == 1:
        return in_turn(left)
    # One job is this process, which a row must not be able to end.
    return in_processes(left, jobs=min(jobs, max(2, len(left))))
