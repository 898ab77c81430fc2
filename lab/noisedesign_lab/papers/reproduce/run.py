"""Run an experiment, or what of it is missing, and write what came out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from noisedesign.base import checks as _checks
from noisedesign.base.atomic import check_replaceable, made_folder, write_text
from noisedesign.base.cluster import Where, give_up
from noisedesign.base.file_kinds import FINDINGS, FINDINGS_MARK
from noisedesign.base.machine import this_machine
from noisedesign.base.settings import CLUSTER_SECONDS
from noisedesign.files.picture_file import FORMATS, VECTOR, style, write_figure
from noisedesign.files.toml import dumped
from noisedesign.surveys.results_file import (
    EXPERIMENT,
    KEY,
    RESULTS_FORMAT,
    ResultsFile,
    format_column,
    open_results,
)
from noisedesign_lab.papers.figures import write_table
from noisedesign_lab.papers.reproduce import load_settings
from noisedesign_lab.papers.reproduce.experiment import Experiment, Record, Rows, Settings, as_table
from noisedesign_lab.papers.reproduce.statistics import groups

UNIT, OF = "unit", "rows_of_unit"
"""Columns of a row's unit and of how many rows that has: all of them, or it is run again."""

ROWS, SUMMARY_FILE, README = "rows.csv", "summary.csv", "README.md"
MOST = 60  # lines of the summary that the page shows
Progress = Callable[[int, int], None]


def reproduce(
    name: str | Path,
    folder: str | Path,
    *,
    quick: bool = False,
    jobs: int = 1,
    cluster: str | None = None,
    timeout: float = CLUSTER_SECONDS,
    to: str = VECTOR,
    progress: Progress | None = None,
) -> list[Path]:
    """Run an experiment or what is missing of it, and return the files, the page first."""
    _checks.one_of(to, field="format", allowed=FORMATS)
    where = Where(jobs=jobs, cluster=cluster, timeout=timeout)
    experiment, settings = load_settings(name, quick=quick)
    made = made_folder(folder)
    check_replaceable(made / README, FINDINGS)
    rows = _rows(experiment, settings, made / ROWS, where, progress or (lambda *_: None))
    summary = experiment.summary(rows, settings)
    further = experiment.tables(rows, settings)
    tables = [made / ROWS]
    for file, records in {SUMMARY_FILE: summary, **further}.items():
        if records:  # mechanisms that a further table compares may not be in these settings
            names = list(records[0])
            lines = ([row[name] for name in names] for row in records)
            tables.append(write_table(made / file, names, lines))
    with style():
        drawn = experiment.pictures(rows, summary, settings)
    pictures = [write_figure(figure, made / f"{stem}.{to}") for stem, figure in drawn.items()]
    columns, shown = list(summary[0]), summary[:MOST]
    few = "As" if len(shown) == len(summary) else f"The first {MOST} of {len(summary)}"
    page = [
        FINDINGS_MARK,
        f"# {experiment.title}\n",
        f"```sh\nnoisedesign reproduce {name}{' --quick' if quick else ''} -o {made.name}\n```\n",
        f"{experiment.paragraph(rows, summary, settings).strip()}\n",
        *(f"![{path.stem.replace('-', ' ')}]({path.name})\n" for path in pictures),
        f"## Numbers\n\n{few} in {SUMMARY_FILE}; the rows they are of are in {ROWS}.\n",
        as_table(columns, ([_cell(row[column]) for column in columns] for row in shown)),
        f"\n## Settings\n\n```toml\n{dumped(settings.model_dump(exclude_none=True))}```\n",
        f"{this_machine()}.\n",
    ]
    return [write_text(made / README, "\n".join(page)), *tables, *pictures]


def _rows(
    experiment: Experiment, settings: Settings, path: Path, where: Where, progress: Progress
) -> list[Record]:
    """Rows of all units, of those that the table has not as they are finished."""
    units = {experiment.key_of(unit): unit for unit in experiment.units(settings)}
    types = {name: of for name, of in experiment.columns.items() if of is not str}
    columns = (UNIT, OF, *experiment.columns)
    with open_results(path, columns=columns, kind=EXPERIMENT, types={OF: int, **types}) as table:
        found = {key: rows for key, rows in _whole(table).items() if key in units}
        left = {key: unit for key, unit in units.items() if key not in found}
        progress(len(found), len(units))

        def lost(key: str) -> Rows:
            give_up(f"unit {json.dumps(left[key])}")

        for key, rows in where.results(experiment.run, left, lost=lost):
            table.put_all(
                {format_column(EXPERIMENT): RESULTS_FORMAT[EXPERIMENT], KEY: row_key}
                | {UNIT: key, OF: len(rows)}
                | row
                for row_key, row in zip(_keys(key, len(rows)), rows, strict=True)
            )
            found[key] = [table.rows[row_key] for row_key in _keys(key, len(rows))]
            progress(len(found), len(units))
    return [row for key in units for row in found[key]]


def _whole(table: ResultsFile) -> dict[str, list[Record]]:
    """Rows by unit, of units that have all of theirs."""
    return {
        key: [table.rows[row_key] for row_key in _keys(key, len(rows))]
        for (key,), rows in groups(table.rows.values(), UNIT)
        if len(rows) == rows[0][OF]
    }


def _keys(unit: str, count: int) -> list[str]:
    return [f"{unit}-{index}" for index in range(count)]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
