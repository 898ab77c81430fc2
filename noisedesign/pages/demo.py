"""The main job in one go: a spatial and a temporal design of one real graph."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from noisedesign.base.atomic import made_folder
from noisedesign.base.extras import need
from noisedesign.base.monitor import Stop
from noisedesign.design.design import design_of
from noisedesign.design.solve import solve
from noisedesign.files.design_file import load_design, save_design
from noisedesign.files.picture_file import VECTOR
from noisedesign.files.problem_file import parse_problem
from noisedesign.mechanisms import baselines
from noisedesign.pages.plot import plot
from noisedesign.system import datasets
from noisedesign.tasks import report
from noisedesign.tasks.report import Record
from noisedesign.tasks.simulate import simulate
from noisedesign.tasks.verify import verify

COLUMNS = ("method", "relative_to_ldp", "gap", "protects")
WIDTH = 80  # columns of a terminal that every line fits, but for the names of files
DIGITS = 3  # of the numbers of its tables
CERTIFIED = 1e-6  # the gap that is asked for; what is left below it is rounding
EGO = 414  # the ego network of Facebook

_SPACE = """name = "{method}-{name}"
design = "{design}"

[graph]
{graph}
weights = "metropolis-hastings"

[privacy]
epsilon = 5.0
delta = 1e-5
clip = 1.0

[participation]
epochs = 20
separation = 16
"""

_TIME = f"""{_SPACE}
[workload]
kind = "decentralized"
"""

_PROBLEMS = (("whisper", "space", _SPACE), ("mafalda", "time", _TIME))


def run(folder: Path, *, runs: int, announce: Callable[[str], None]) -> list[Record]:
    """Solve, save, verify, simulate and draw; one record a design, baselines included."""
    need("matplotlib", field="output")
    made_folder(folder)
    found = datasets.data_folder()
    if found is not None and (found / "ego-facebook" / f"{EGO}.edges").exists():
        name, graph = "ego-148", f'kind = "ego-facebook"\nego = {EGO}'
    else:
        name, graph = "florentine", 'kind = "florentine"'
        announce("no Facebook data (NOISEDESIGN_DATA): using the Florentine families")
    records = []
    for method, design, template in _PROBLEMS:
        text = template.format(method=method, design=design, name=name, graph=graph)
        records += _design(text, folder, name, runs, announce)
    return records


def _design(
    text: str, folder: Path, graph: str, runs: int, announce: Callable[[str], None]
) -> list[Record]:
    problem = parse_problem(text, folder=folder).problem
    announce(f"{problem.name}: solving")
    solution = solve(problem)
    if solution.status == Stop.INTERRUPTED:
        raise KeyboardInterrupt
    assert solution.design is not None
    path = save_design(solution.design, folder / f"{problem.name}.npz", problem_text=text)
    stored = load_design(path)
    announce(f"{problem.name}: verifying and simulating {path}")
    verified = verify(stored).ok
    simulated = simulate(design_of(stored), runs=runs).agrees
    others = baselines.published(problem, dual=solution.design)
    image = plot(solution.design, path=folder / f"{problem.name}.{VECTOR}", others=others)
    blank = {"graph": graph, "verified": None, "simulated": None, "holds": True}
    blank |= {"file": None, "picture": None}
    rows = [blank | report.design_record(design) for design in (*others, solution.design)]
    files = {"file": str(path), "picture": str(image)}
    rows[-1] |= {"verified": verified, "simulated": simulated, **files}
    rows[-1]["holds"] = verified and simulated
    return rows


def rows_of(records: Sequence[Record]) -> list[Record]:
    """The records of one design as a table shows them."""

    def rounded(value: float | None) -> float | None:
        return None if value is None else float(f"{value:.{DIGITS}g}")

    return [
        record
        | {"relative_to_ldp": rounded(record["relative_to_ldp"])}
        | {"gap": record["gap"] and rounded(max(record["gap"], CERTIFIED))}
        for record in records
    ]


def title_of(ours: Record) -> str:
    """Name the design of a table."""
    across = {"space": "between nodes", "time": "over time"}[ours["design"]]
    return f"{ours['name']}: noise correlated {across}"


def words(designs: Sequence[Record]) -> Iterator[str]:
    """Say what the tables mean, what was checked, and which files to open."""
    epsilon, delta = designs[0]["epsilon"], designs[0]["delta"]
    yield from _paragraphs(
        f"Privacy: every row is ({epsilon:g}, {delta:g})-DP under {designs[0]['adjacency']}. "
        "Whatever anybody sees of what a row protects, over the whole run, is at most "
        f"e^{epsilon:g} = {math.exp(epsilon):.0f} times as probable, plus {delta:g}, if one "
        "record is replaced by another.",
        "relative to ldp: the squared error that noise leaves in the models, where independent "
        "noise (ldp) leaves 1.",
        "gap: how much more that is, at most, than the least of all noise that protects every "
        "message as well.",
        "verified: the file was read back, and its privacy, error and gap were computed anew from "
        "its matrices, by NumPy and no solver.",
        "simulated: in runs with this noise, its error and what an attacker can tell were as "
        "claimed.",
    )
    for ours in designs:
        checks = (f"{name} {'yes' if ours[name] else 'NO'}" for name in ("verified", "simulated"))
        yield f"{ours['name']}: {', '.join(checks)}"
        yield f"  open in a browser  {ours['picture']}"
        yield f"  the design itself  {ours['file']}"
    yield ""
    yield f"Next: noisedesign report {designs[0]['file']}"


def _paragraphs(*texts: str) -> Iterator[str]:
    for text in texts:
        yield textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)
        yield ""
