"""The main job in one go: a spatial and a temporal design of one real graph."""

from __future__ import annotations

from collections.abc import Callable
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

COLUMNS = ("name", "method", "relative_to_ldp", "gap", "protects")
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
    blank = {"graph": graph, "verified": None, "simulated": None, "picture": None, "holds": True}
    rows = [blank | report.design_record(design) for design in (*others, solution.design)]
    rows[-1] |= {"verified": verified, "simulated": simulated, "picture": str(image)}
    rows[-1]["holds"] = verified and simulated
    return rows
