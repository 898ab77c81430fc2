"""A grid of problems, each with some backends, solved here or on a cluster, one row an answer.

A sweep is a list of rows in plain values (`files.sweep_file`); `rows` computes one, `workers` many
at a time here and `cluster` on a Dask cluster; `run` keeps the table, which only it writes.
"""

from noisedesign.files.sweep_file import Sweep, SweepRow, load_sweep, parse_sweep
from noisedesign.tasks.sweep.run import TIMEOUT_SECONDS, Summary, sweep

__all__ = ["TIMEOUT_SECONDS", "Summary", "Sweep", "SweepRow", "load_sweep", "parse_sweep", "sweep"]
