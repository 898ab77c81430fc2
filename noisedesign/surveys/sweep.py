"""A grid of problems, each with some backends, into one table, which only this process writes.

What is missing from the table is computed here, by processes of this machine with one BLAS thread
each, or on a Dask cluster. A row is the same to its gap wherever it is computed, and never an
error. Rows of a grid are alike, so a row starts from the nearest that the same process solved
before it: that saves evaluations and changes no answer by more than its gap."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError
from noisedesign.base.cluster import Where
from noisedesign.base.settings import CLUSTER_SECONDS
from noisedesign.base.shown import Shown
from noisedesign.design.backends import get_backend
from noisedesign.design.design import Design
from noisedesign.design.solve import FAILED, solve
from noisedesign.design.tune import objective_of
from noisedesign.design.warm_start import Neighbours
from noisedesign.files.problem_file import parse_problem
from noisedesign.problem.problem import Problem
from noisedesign.surveys import rows as judging
from noisedesign.surveys.results_file import KEY, RESULTS_FORMAT, SWEEP, format_column, open_results
from noisedesign.surveys.rows import Progress
from noisedesign.surveys.sweep_file import Sweep, SweepRow, with_curvature
from noisedesign.system.workloads.error import Term
from noisedesign.tasks.report import Record


@dataclass(frozen=True, kw_only=True, repr=False)
class Summary(Shown):
    """The numbers of rows of a sweep.

    Attributes:
        output: the table.
        rows: of the sweep, how many.
        skipped: how many of them the table had.
        run: how many of them were run.
        unsolved: how many of them are unsolved now, whenever they were run.
        remarks: sentences about what wrong curvatures cost, where rows have some.
    """

    output: Path
    rows: int
    skipped: int
    run: int
    unsolved: int
    remarks: tuple[str, ...] = ()


def sweep(
    plan: Sweep,
    *,
    output: str | Path,
    jobs: int = 1,
    cluster: str | None = None,
    timeout: float = CLUSTER_SECONDS,
    retry: bool = False,
    progress: Progress | None = None,
) -> Summary:
    """Compute the rows of ``plan`` that the table at ``output`` does not have yet.

    Every row is on the disk as soon as it is finished, so that whatever ends this, the next call
    goes on from there. Rows of other grids with the same columns are left as they are.

    Args:
        plan: what :func:`noisedesign.load` gave.
        output: a .csv or .parquet file; columns are its version, the key of the row, the swept
            keys, what was asked for, and :data:`noisedesign.surveys.rows.COLUMNS`.
        jobs: processes of this machine; 1 is this process.
        cluster: address of a Dask scheduler, as "tcp://host:port", in place of ``jobs``.
        timeout: seconds to wait for that scheduler and its first worker.
        retry: run the rows again that were not solved, but for local optima, which stay so.
        progress: called with the number of rows that are finished, and that of all.

    Returns:
        How many rows there are, were there already, were run, and are unsolved.

    Raises:
        InputError: naming ``plan``, ``jobs``, ``cluster``, ``timeout`` or ``output``, which another
            process may have open.
        OSError: the table cannot be written any more, the cluster or all workers are lost; what
            was finished is kept.

    Examples:
        >>> from pathlib import Path
        >>> import noisedesign as nd
        >>> lines = ['name = "rings"', 'design = "space"', "[graph]", 'kind = "ring"', "nodes = 4"]
        >>> lines += ["[grid]", '"graph.nodes" = [4, 5, 7]']
        >>> _ = Path("rings.toml").write_text("\\n".join(lines))
        >>> plan = nd.load("rings.toml")
        >>> first = nd.sweep(plan, output="rings.csv")
        >>> again = nd.sweep(plan, output="rings.csv")
        >>> (first.run, first.unsolved), (again.run, again.skipped)
        ((3, 0), (0, 3))
    """
    _checks.instance(plan, Sweep, field="plan", expected="a sweep, as load(path) gives it")
    retry = _checks.flag(retry, field="retry")
    where = Where(jobs=jobs, cluster=cluster, timeout=timeout)

    def compute(left: list[SweepRow]) -> Iterator[Record]:
        return _records(left, where)

    with open_results(output, columns=columns_of(plan.keys), types=TYPES) as table:
        how: Any = {"table": table, "retry": retry, "progress": progress}
        found, done = judging.kept(plan.rows, compute, **how)
    total = len(plan.rows)
    unsolved = sum(not found[row.key]["solved"] for row in plan.rows)
    counts: Any = {"rows": total, "skipped": done, "run": total - done, "unsolved": unsolved}
    remarks = _remarks([found[row.key] for row in plan.rows])
    return Summary(output=table.path, remarks=remarks, **counts)


def _remarks(rows: list[Record]) -> tuple[str, ...]:
    """Sentences about what wrong curvatures cost at the most."""
    told = []
    for name in MISJUDGED:
        known = [row[name] for row in rows if row[name] is not None]
        if known:
            how = name.removeprefix("if_").replace("_", " ")
            told.append(
                f"If the loss is {how} than stated, designs have {min(known):.3f} to "
                f"{max(known):.3f} times the least error (column {name})."
            )
    return tuple(told)


def _records(left: list[SweepRow], where: Where) -> Iterator[Record]:
    work, files = row_of, set[Path]()
    if where.here:
        work = partial(row_of, neighbours=Neighbours())
    elif where.cluster is not None:
        left = [replace(row, folder=row.folder.absolute()) for row in left]
        files = {path for row in left for path in row.files}
    wanted = {row.key: row for row in left}

    def lost(key: str) -> Record:
        why = {"status": FAILED, "reason": "it ended every worker that computed it"}
        return _blank(wanted[key]) | why

    return (record for _, record in where.results(work, wanted, files=files, lost=lost))


MISJUDGED = {"if_4_times_flatter": 1 / 4, "if_4_times_steeper": 4.0}  # of the curvature stated
"""Error of a design where curvatures are so many times those stated, over the optimum for them."""


def misjudged(row: SweepRow, problem: Problem, design: Design | None) -> dict[str, float | None]:
    """Ratios that wrong curvatures cost; None without any, and where steps would diverge."""
    found: dict[str, float | None] = dict.fromkeys(MISJUDGED)
    if design is None or all(term.curvature == 0 for term in error_terms(problem)):
        return found
    for name, factor in MISJUDGED.items():
        try:
            other = parse_problem(with_curvature(row.text, factor), folder=row.folder).problem
            best = solve(other, gap=row.gap).design
        except InputError:
            continue
        if best is not None:
            found[name] = objective_of(other, design.noise) / best.objective
    return found


def error_terms(problem: Problem) -> list[Term]:
    return [] if problem.error is None else problem.error.terms


TYPES = judging.TYPES | {"asked_gap": float, "time_limit": float, "warm": bool}
TYPES |= dict.fromkeys(MISJUDGED, float)

_worker = Neighbours()  # the designs that this process found as a worker, of whichever sweeps


def columns_of(keys: Iterable[str]) -> tuple[str, ...]:
    """Columns after version and key: those swept, asked, the start, a comparison's, misjudged."""
    swept = (key for key in keys if key not in judging.COLUMNS)
    return (*swept, "asked_gap", "time_limit", "warm", *judging.COLUMNS, *MISJUDGED)


def row_of(row: SweepRow, neighbours: Neighbours = _worker) -> Record:
    """Solve and judge a problem, from ``neighbours``; what goes wrong is a status with a reason."""
    blank = _blank(row)

    def answer() -> Record:
        problem = parse_problem(row.text, folder=row.folder).problem
        remembers = get_backend(row.backend).remembers
        start = neighbours.nearest(problem) if remembers else None
        found, design = judging.answered(
            problem, backend=row.backend, gap=row.gap, time_limit=row.time_limit, start=start
        )
        if remembers and design is not None:
            neighbours.add(design)
        return {"warm": start is not None} | found | misjudged(row, problem, design)

    return blank | judging.attempted(blank, answer)


def _blank(row: SweepRow) -> Record:
    """A row of which only what was asked is known."""
    asked = {"asked_gap": row.gap, "time_limit": row.time_limit, "warm": False}
    version = {format_column(SWEEP): RESULTS_FORMAT[SWEEP], KEY: row.key}
    named = judging.named(row.name, row.design, row.backend)
    return version | row.parameters | asked | named | dict.fromkeys(MISJUDGED)
