"""Every published mechanism beside the optimum: ``python -m benchmarks.baselines``.

Errors over that of independent noise (LDP) at equal privacy, in space and in time, and how far the
optimum is from its bound at most. Metropolis-Hastings weights. The network of 148 nodes is left out
where its data are not on this machine.
"""

from __future__ import annotations

from noisedesign.files.problem_file import load_problem
from noisedesign.files.toml import shipped_folder
from noisedesign.mechanisms.baselines import compared
from noisedesign.system import datasets
from noisedesign.tasks import report
from noisedesign.tasks.report import Record

FILES = {
    "space, one gossip step": ("whisper/florentine", "whisper/ego-148"),
    "time, 20 epochs of 16 steps": ("mafalda/florentine-20x16-mh", "mafalda/ego-148-20x16-mh"),
}
NAMES = ("Florentine, 15 nodes", "ego network, 148 nodes")
TOLD = {
    "ldp": "independent noise (LDP)",
    "cdp": "trusted server (CDP), which protects less",
    "decor": "DECOR, best s and c in R = s I + c L",
    "antipgd": "AntiPGD",
    "d-mf": "prefix-optimal strategy at every node (D-MF)",
    "banded-sqrt": "banded square root, 16 bands",
    "normalized-sqrt": "square root with columns of norm 1",
    "bisr": "banded inverse square root (BISR)",
    "bifr": "the same of the best power (γ-BIFR)",
    "optimal": "optimum",
}


def rows_of(files: tuple[str, ...]) -> list[Record]:
    """A row a mechanism, a column a graph; then the optimum's own objective and gap."""
    rows: dict[str, Record] = {name: {"mechanism": TOLD[name], "method": name} for name in TOLD}
    told = ("objective of the optimum", "certified gap of the optimum")
    objective, gap = ({"mechanism": name} for name in told)
    for graph, file in zip(NAMES, files, strict=True):
        if "ego" in file and datasets.local_ego_facebook(414) is None:
            continue
        designs = compared(load_problem(shipped_folder() / f"{file}.toml").problem)
        for design in designs:
            rows[design.provenance.method][graph] = f"{design.relative_to_ldp:.3g}"
            if design.provenance.method == "optimal":
                objective[graph] = f"{design.objective:.6g}"
                # The last digits of a gap are those of the processor.
                gap[graph] = "at most 1e-6" if design.gap <= 1e-6 else f"{design.gap:.1g}"
    return [row for row in rows.values() if len(row) > 2] + [objective, gap]


def main() -> None:
    for title, files in FILES.items():
        rows = rows_of(files)
        print()
        report.print_table(rows, ["mechanism", "method", *NAMES], title=title)


if __name__ == "__main__":
    main()
