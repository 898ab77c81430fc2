"""Bad input through the command line: one line that names the field, and the right exit code.

Nothing on standard output, no traceback, and nothing that stood on disk before is harmed.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import networkx as nx
import numpy as np
import psutil
import pytest

from noisedesign.design.backends import get_backend
from noisedesign.files.design_file import load_design
from noisedesign.system.graph import mixing_matrix
from tests.support.command_line import (
    CAPPED,
    EPOCHS,
    MODULE,
    PREFIX,
    RING,
    Outcome,
    call,
    environment,
    hear_ctrl_c,
    shell,
    write,
)

Command = Callable[[Path], list[object]]


def assert_refused(outcome: Outcome, field: str, *words: str) -> None:
    assert outcome.code == 2, outcome
    assert outcome.out == ""
    assert outcome.err.startswith(f"noisedesign: error: {field}: expected "), outcome.err
    assert outcome.err.count("\n") == 1
    assert outcome.err.endswith("\n")
    for word in words:
        assert word in outcome.err, outcome.err


def solving(text: str, *options: object) -> Command:
    return lambda folder: ["solve", write(folder, text), *options]


def with_matrix(w: np.ndarray, design: str = "space", more: str = "") -> Command:
    """A problem whose W, or whose H where design is "gram", comes from a file."""

    def command(folder: Path) -> list[object]:
        np.save(folder / "W.npy", w, allow_pickle=w.dtype.hasobject)
        text = f'name = "m"\ndesign = "{"time" if design == "gram" else design}"\n'
        if design == "gram":
            text += '[workload]\nkind = "gram"\nfile = "W.npy"\n'
        else:
            text += '[graph]\nkind = "matrix"\nfile = "W.npy"\n'
        if design == "time":
            text += '[workload]\nkind = "decentralized"\n'
        if design != "space":
            text += f"[participation]\nepochs = 1\nseparation = {len(w)}\n"
        return ["solve", write(folder, text + more)]

    return command


def edited(text: str, old: str, new: str) -> Command:
    assert old in text
    return solving(text.replace(old, new))


def design_in(folder: Path, text: str = RING) -> Path:
    path = folder / "design.npz"
    assert call("solve", write(folder, text), "-o", path).code == 0
    return path


# --- matrices ------------------------------------------------------------------------------------

W = mixing_matrix(nx.path_graph(4))
TWO_PARTS = np.kron(np.eye(2), np.full((2, 2), 0.5))


def changed(entry: tuple[int, int], value: float) -> np.ndarray:
    w = W.copy()
    w[entry] = value
    return w


ASYMMETRIC = np.array([[0.5, 0.5, 0.0], [0.3, 0.4, 0.3], [0.2, 0.1, 0.7]])
"""Row stochastic, column sums 1: nonnegative, doubly stochastic and yet not symmetric."""

ROW_ONLY = mixing_matrix(nx.path_graph(4), weights="row-normalized")
"""Not symmetric, and row stochastic only."""

MATRICES: dict[str, tuple[Command, str, str]] = {
    "disconnected": (with_matrix(TWO_PARTS), "graph.file", "every node to reach every other"),
    "disconnected in time": (with_matrix(TWO_PARTS, "time"), "graph.file", "reach every other"),
    "columns in the place of rows": (with_matrix(ROW_ONLY.T), "graph.file", "rows that sum to 1"),
    "negative": (with_matrix(changed((0, 0), -1.0)), "graph.file", "nonnegative weights, got -1"),
    "rows do not sum to one": (with_matrix(changed((1, 1), 0.9)), "graph.file", "row"),
    "rows in time": (with_matrix(changed((1, 1), 0.9), "time"), "graph.file", "row"),
    "nan": (with_matrix(changed((1, 2), np.nan)), "graph.file", "finite entries, got nan"),
    "infinite": (with_matrix(changed((1, 2), np.inf)), "graph.file", "finite"),
    "not square": (with_matrix(W[:3]), "graph.file", "shape (3, 4)"),
    "not a matrix": (with_matrix(np.ones(4)), "graph.file", "2 axes"),
    "float32": (with_matrix(W.astype(np.float32)), "graph.file", "float32"),
    "complex": (with_matrix(W + 0j), "graph.file", "complex128"),
    "pickled": (with_matrix(W.astype(object)), "graph.file", "object arrays are refused"),
    "singular with divergent noise": (
        with_matrix(np.full((3, 3), 1 / 3), more='[limits]\nmax_variance = "none"\n'),
        "mixing",
        "limits.max_variance",
    ),
    "gram not symmetric": (
        with_matrix(np.array([[1, 2], [0, 1.0]]), "gram"),
        "workload.file",
        "symmetric",
    ),
    "gram not positive": (
        with_matrix(np.array([[1, 2], [2, 1.0]]), "gram"),
        "workload.file",
        "semidefinite",
    ),
    "gram nan": (with_matrix(np.array([[np.nan]]), "gram"), "workload.file", "finite"),
}


def test_what_a_temporal_design_does_not_need(tmp_path: Path) -> None:
    """Symmetry and column sums: a spatial design without them is refused, a temporal one not."""
    assert call(*with_matrix(ROW_ONLY, "time")(tmp_path), "--json").json()["status"] == "optimal"
    np.testing.assert_allclose(ASYMMETRIC.sum(axis=0), 1)
    assert call(*with_matrix(ASYMMETRIC)(tmp_path), "--json").json()["status"] == "optimal"


def test_null_direction_is_named(tmp_path: Path) -> None:
    ring = RING.replace("nodes = 5", "nodes = 6")
    outcome = call("solve", write(tmp_path, ring + '[limits]\nmax_variance = "none"\n'))
    assert_refused(outcome, "mixing", "null direction {", ": +0.", "limits.max_variance")


def test_a_byte_order_mark_is_no_part_of_a_text(tmp_path: Path) -> None:
    """Some editors begin UTF-8 files with one: U+FEFF, which is no name of a key or of a node."""
    (tmp_path / "e.edges").write_text("\ufeffa b\nb c\n", encoding="utf-8")
    text = '\ufeffname = "n"\ndesign = "space"\n[graph]\nkind = "edges"\nfile = "e.edges"\n'
    (tmp_path / "marked.toml").write_text(text, encoding="utf-8")
    outcome = call("solve", tmp_path / "marked.toml", "-o", tmp_path / "d.npz")
    assert outcome.code == 0, outcome
    assert load_design(tmp_path / "d.npz").design.problem.nodes == ("a", "b", "c")
    assert call("verify", tmp_path / "d.npz").code == 0


@pytest.mark.filterwarnings("default:graph.file")
def test_disconnected_edge_list_keeps_its_largest_part(tmp_path: Path) -> None:
    """The one graph that may be disconnected: a data set, of which the largest component counts."""
    (tmp_path / "g.edges").write_text("a b\nb c\nc d\nd e\nx y\n")
    text = RING.replace('kind = "ring"\nnodes = 5', 'kind = "edges"\nfile = "g.edges"')
    found = call("solve", write(tmp_path, text), "--json")
    assert found.json()["status"] == "optimal"
    assert "2 of 7 nodes do not reach the others, and are left out" in found.err


# --- problem files and options -------------------------------------------------------------------

PRIVACY = RING + "\n[privacy]\nepsilon = 1.0\ndelta = 1e-6\n"
BUDGET = RING + "\n[budget]\ntau = 1.0\n"

PROBLEMS: dict[str, tuple[Command, str, str]] = {
    "unknown key": (solving(RING + "\n[budgets]\ntau = 1.0\n"), "budgets", "Did you mean budget?"),
    "unknown key in a table": (edited(RING, "nodes = 5", "nodes = 5\np = 0.5"), "graph.p", ""),
    "missing key": (edited(RING, "nodes = 5", ""), "graph.nodes", ""),
    "missing table": (solving('name = "x"\ndesign = "space"\n'), "graph", ""),
    "wrong type": (edited(RING, "nodes = 5", 'nodes = "5"'), "graph.nodes", ""),
    "unknown graph": (edited(RING, '"ring"', '"rings"'), "graph.kind", ""),
    "unknown weights": (
        edited(RING, "nodes = 5", 'nodes = 5\nweights = "w"'),
        "graph.weights",
        "max-degree",
    ),
    "not TOML": (solving("name = "), "problem", "TOML"),
    "missing file": (lambda folder: ["solve", folder / "no.toml"], "problem", "no.toml"),
    "a folder": (lambda folder: ["solve", folder], "problem", "readable TOML file"),
    "missing edges": (
        edited(RING, 'kind = "ring"\nnodes = 5', 'kind = "edges"\nfile = "no.edges"'),
        "graph.file",
        "no.edges",
    ),
    "missing matrix": (
        edited(RING, 'kind = "ring"\nnodes = 5', 'kind = "matrix"\nfile = "no.npy"'),
        "graph.file",
        "no.npy",
    ),
    "zero epochs": (edited(EPOCHS, "epochs = 2", "epochs = 0"), "participation.epochs", ">= 1"),
    "tau zero": (edited(BUDGET, "tau = 1.0", "tau = 0.0"), "budget.tau", "> 0"),
    "tau negative": (edited(BUDGET, "tau = 1.0", "tau = [1, 1, -2, 1, 1]"), "budget.tau", "-2"),
    "tau of another length": (
        edited(BUDGET, "tau = 1.0", "tau = [1.0, 2.0]"),
        "budget.tau",
        "5 values",
    ),
    "tau nan": (edited(BUDGET, "tau = 1.0", "tau = nan"), "budget.tau", "nan"),
    "cap below what any noise needs": (
        edited(CAPPED, "3.0", "0.9"),
        "limits.max_variance",
        "more than 1 / tau = 1",
    ),
    "epsilon zero": (edited(PRIVACY, "epsilon = 1.0", "epsilon = 0.0"), "privacy.epsilon", ""),
    "epsilon negative": (edited(PRIVACY, "epsilon = 1.0", "epsilon = -1.0"), "privacy.epsilon", ""),
    "epsilon infinite": (edited(PRIVACY, "epsilon = 1.0", "epsilon = inf"), "privacy.epsilon", ""),
    "delta zero": (edited(PRIVACY, "delta = 1e-6", "delta = 0.0"), "privacy.delta", "(0, 1)"),
    "delta one": (edited(PRIVACY, "delta = 1e-6", "delta = 1.0"), "privacy.delta", "(0, 1)"),
    "delta nan": (edited(PRIVACY, "delta = 1e-6", "delta = nan"), "privacy.delta", "nan"),
    "unknown adjacency": (
        solving(PRIVACY + 'adjacency = "add"\n'),
        "privacy.adjacency",
        "zero-out",
    ),
    "steps against the horizon": (
        solving(EPOCHS + "\n[privacy]\nepsilon = 1.0\ndelta = 1e-6\nsteps = 7\n"),
        "privacy.steps",
        "6, the horizon",
    ),
    "unknown backend": (solving(RING, "--backend", "gurobi"), "backend", "clarabel"),
    "unknown formulation": (
        solving(RING, "--backend", "scs", "--formulation", "x"),
        "formulation",
        "compact",
    ),
    "paper form of a temporal design": (
        solving(EPOCHS, "--backend", "clarabel", "--formulation", "paper"),
        "backend",
        "several epochs",
    ),
    "negative gap": (solving(RING, "--gap", "-1e-6"), "gap", "(0, 1)"),
    "gap zero": (solving(RING, "--gap", "0"), "gap", "(0, 1)"),
    "gap one": (solving(RING, "--gap", "1"), "gap", "(0, 1)"),
    "gap nan": (solving(RING, "--gap", "nan"), "gap", "nan"),
    "no time": (solving(RING, "--time-limit", "0"), "time_limit", "0"),
    "negative time": (solving(RING, "--time-limit", "-3"), "time_limit", "-3"),
    "output folder missing": (
        solving(RING, "-o", "/no/such/folder/d.npz"),
        "output",
        "existing folder",
    ),
    "output below a file": (
        lambda folder: ["solve", write(folder, RING), "-o", folder / "problem.toml" / "d.npz"],
        "output",
        "existing folder",
    ),
    "comparison with an unknown backend": (
        lambda folder: ["compare", write(folder, RING), "--backends", "native,gurobi"],
        "backend",
        "gurobi",
    ),
    "comparison without backends": (
        lambda folder: ["compare", write(folder, RING), "--backends", ","],
        "backends",
        "commas",
    ),
    "comparison with a negative gap": (
        lambda folder: ["compare", write(folder, RING), "--backends", "native", "--gap", -1],
        "gap",
        "-1",
    ),
    "comparison with a bad problem": (
        lambda folder: ["compare", write(folder, RING), folder / "no.toml", "--backends", "native"],
        "problem",
        "no.toml",
    ),
    "baselines of a bad problem": (lambda folder: ["baselines", folder], "problem", "readable"),
    "demo into a file": (
        lambda folder: ["demo", "-o", write(folder, RING) / "out"],
        "output",
        "folder",
    ),
}


@pytest.mark.parametrize(
    ("command", "field", "words"),
    [*MATRICES.values(), *PROBLEMS.values()],
    ids=[*MATRICES, *PROBLEMS],
)
def test_matrices_problems_and_options(
    command: Command, field: str, words: str, tmp_path: Path
) -> None:
    assert_refused(call(*command(tmp_path)), field, words)


def test_horizon_against_the_workload(tmp_path: Path) -> None:
    np.save(tmp_path / "H.npy", np.eye(6))
    text = PREFIX.replace('kind = "prefix"', 'kind = "gram"\nfile = "H.npy"')
    outcome = call("solve", write(tmp_path, text.replace("separation = 6", "separation = 4")))
    assert_refused(outcome, "participation", "epochs * separation = 6", "1 * 4 = 4")


def test_errors_name_the_problem_file(tmp_path: Path) -> None:
    outcome = call(*edited(BUDGET, "tau = 1.0", "tau = 0.0")(tmp_path))
    assert f"(in {tmp_path / 'problem.toml'})" in outcome.err


@pytest.mark.parametrize("json", [(), ("--json",)])
def test_json_or_not_errors_are_one_line(json: tuple[str, ...], tmp_path: Path) -> None:
    assert_refused(call("solve", tmp_path / "no.toml", *json), "problem")


def test_unlicensed_mosek(tmp_path: Path) -> None:
    available = get_backend("mosek").availability()
    if available.ready:
        pytest.skip("this machine has a MOSEK licence")
    outcome = call("solve", write(tmp_path, RING), "--backend", "mosek")
    state = "not licensed" if available.installed else "not installed"
    assert_refused(outcome, "backend", f"mosek, which is {state}", "mosek.com/license/request")


USAGE: dict[str, tuple[list[object], str]] = {
    "unknown command": (["solv", "x"], "solv"),
    "unknown option": (["solve", "x", "--gapp", "1"], "--gapp"),
    "no problem": (["solve"], "PROBLEM"),
    "gap of no number": (["solve", "x", "--gap", "tight"], "'tight' is not a valid float"),
    "no output": (["plot", "x"], "--output"),
    "too many": (["verify", "x", "y"], "y"),
    "output is a folder": (["plot", "x", "-o", "/"], "is a directory"),
}


@pytest.mark.parametrize(("arguments", "words"), list(USAGE.values()), ids=list(USAGE))
def test_usage(arguments: list[object], words: str) -> None:
    outcome = call(*arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("noisedesign: error: ")
    assert outcome.err.count("\n") == 1
    assert words in outcome.err
    assert " --help)" in outcome.err


# --- design files --------------------------------------------------------------------------------


def damaged(damage: Callable[[bytes], bytes]) -> Callable[[Path], Path]:
    def path_of(folder: Path) -> Path:
        path = design_in(folder)
        path.write_bytes(damage(path.read_bytes()))
        return path

    return path_of


def pickled(folder: Path) -> Path:
    """A pickle that would leave a trace if it were ever loaded."""

    class Bomb:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (folder / "exploded",))

    path = folder / "design.npz"
    path.write_bytes(pickle.dumps(Bomb()))
    return path


def object_array(folder: Path) -> Path:
    path = folder / "design.npz"
    np.savez(path, covariance=np.array([pickle.dumps(1), None], dtype=object))
    return path


DESIGNS: dict[str, Callable[[Path], Path]] = {
    "missing": lambda folder: folder / "no.npz",
    "a folder": lambda folder: folder,
    "empty": damaged(lambda content: b""),
    "truncated": damaged(lambda content: content[: len(content) // 2]),
    "one byte short": damaged(lambda content: content[:-1]),
    "one bit changed": damaged(
        lambda content: content[:500] + bytes([content[500] ^ 1]) + content[501:]
    ),
    "one byte more": damaged(lambda content: content + b"\n"),
    "not a design": lambda folder: write(folder, RING),
    "pickled": pickled,
    "object array": object_array,
}


@pytest.mark.parametrize(
    "command",
    [["verify"], ["simulate"], ["export", "--to", "npy", "-o"], ["plot", "-o"]],
    ids=lambda command: command[0],
)
@pytest.mark.parametrize("make", list(DESIGNS.values()), ids=list(DESIGNS))
def test_design_files(make: Callable[[Path], Path], command: list[str], tmp_path: Path) -> None:
    path, target = make(tmp_path), tmp_path / "target.png"
    arguments = [*command, *([target] if command[-1] == "-o" else []), path]
    assert_refused(call(*arguments), "design file")
    assert not target.exists()
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    ("text", "target"), [(RING, "jax-privacy"), (RING, "mfdl"), (EPOCHS, "whisper-dsgd")]
)
def test_wrong_kind_for_a_trainer(text: str, target: str, tmp_path: Path) -> None:
    path = design_in(tmp_path, text)
    outcome = call("export", path, "--to", target, "-o", tmp_path / "out")
    assert_refused(outcome, "design", target)
    assert not (tmp_path / "out").exists()


def test_unknown_exporter(tmp_path: Path) -> None:
    outcome = call("export", design_in(tmp_path), "--to", "onnx", "-o", tmp_path / "out")
    assert_refused(outcome, "to", "whisper-dsgd", "'onnx'")


@pytest.mark.parametrize("target", ["npy", "csv", "mat", "safetensors", "whisper-dsgd"])
def test_export_into_a_missing_folder(target: str, tmp_path: Path) -> None:
    outcome = call("export", design_in(tmp_path), "--to", target, "-o", tmp_path / "no" / "x")
    assert_refused(outcome, "output", "existing folder")


@pytest.mark.parametrize(
    ("options", "field"),
    [(["--runs", 0], "runs"), (["--runs", 1], "runs"), (["--seed", -1], "seed")],
)
def test_simulation_options(options: list[object], field: str, tmp_path: Path) -> None:
    assert_refused(call("simulate", design_in(tmp_path), *options), field)


# --- the disk ------------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs /proc, where nobody may write")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    outcome = call("solve", write(tmp_path, RING), "-o", "/proc/design.npz", "--json")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith("noisedesign: error: could not write /proc/design.npz: ")
    assert outcome.err.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_device_is_no_file(tmp_path: Path) -> None:
    outcome = call("solve", write(tmp_path, RING), "-o", "/dev/full")
    assert_refused(outcome, "output", "a device")


@pytest.mark.slow
def test_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    """A file may grow to 512 bytes and no further, as on a disk that is full."""
    path = design_in(tmp_path)
    before = path.read_bytes()
    assert len(before) > 512
    write(tmp_path, EPOCHS)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))

    outcome = shell("solve", "problem.toml", "-o", "design.npz", cwd=tmp_path, preexec_fn=limit)
    assert outcome.code == 1
    assert outcome.err.startswith("noisedesign: error: could not write design.npz: ")
    assert "the existing file is untouched" in outcome.err
    assert "Traceback" not in outcome.err
    assert path.read_bytes() == before
    assert load_design(path).design.problem.name == "ring-5"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["design.npz", "problem.toml"]


def test_a_bad_output_is_found_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*args: object, **kwargs: object) -> None:
        raise AssertionError("solved before the output was looked at")

    monkeypatch.setattr(sys.modules["noisedesign.design.solve"], "solve", work)
    outcome = call("solve", write(tmp_path, RING), "-o", tmp_path / "no" / "d.npz")
    assert_refused(outcome, "output")


# --- time and Ctrl-C -----------------------------------------------------------------------------


def test_time_limit_is_a_result(tmp_path: Path) -> None:
    outcome = call("solve", write(tmp_path, EPOCHS), "--time-limit", "1e-6", "--json")
    assert outcome.code == 1  # short of the gap asked for
    record = outcome.json()
    assert (record["status"], record["feasible"]) == ("time-limit", True)
    assert 0 < record["lower_bound"] < record["objective"]


LINGERING = """
import sys, time
from noisedesign.cli import designs, main
show = designs.bounds_progress
def show_and_linger(bounds):
    show(bounds)
    if not bounds.doing:
        print("lingers", file=sys.stderr, flush=True)
        time.sleep(600)
designs.bounds_progress = show_and_linger
main()
"""
"""The command, of whose solve one knows where it is when it shows its first bounds."""


def test_ctrl_c_during_the_native_solve(tmp_path: Path) -> None:
    """Standard error is a terminal, so progress shows; the signal comes with the first bounds."""
    write(tmp_path, EPOCHS)
    terminal, inner = os.openpty()
    with subprocess.Popen(
        [
            sys.executable,
            "-c",
            LINGERING,
            "solve",
            "problem.toml",
            "--gap",
            "1e-9",
            "--json",
            "-o",
            "best.npz",
        ],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=inner,
        text=True,
        preexec_fn=hear_ctrl_c,
    ) as process:
        os.close(inner)
        shown = b""
        while b"lingers" not in shown:
            shown += os.read(terminal, 4096)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate()
    shown += _rest(terminal)
    outcome = Outcome(process.returncode, out, shown.decode())
    assert outcome.code == 130
    assert "Traceback" not in outcome.err
    assert "interrupted: certified gap" in outcome.err
    record = outcome.json()
    assert (record["status"], record["feasible"]) == ("interrupted", True)
    assert record["gap"] > 1e-9
    assert load_design(tmp_path / "best.npz").design.objective == record["objective"]


def _rest(terminal: int) -> bytes:
    """What is left in a pseudo-terminal whose other end is closed."""
    found = b""
    try:
        while chunk := os.read(terminal, 4096):
            found += chunk
    except OSError:  # how Linux says end of file here
        pass
    finally:
        os.close(terminal)
    return found


@pytest.mark.slow
def test_ctrl_c_ends_a_solver_that_ignores_it(tmp_path: Path) -> None:
    """A compiled solver sees no Ctrl-C: its process is ended, and its files are gone."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    write(tmp_path, PREFIX.replace("separation = 6", "separation = 60"))
    with subprocess.Popen(
        [
            *MODULE,
            "solve",
            "problem.toml",
            "--backend",
            "clarabel",
            "--formulation",
            "paper",
            "--json",
        ],
        cwd=tmp_path,
        env=environment(TMPDIR=str(scratch)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_ctrl_c,
    ) as process:
        while not list(scratch.glob("noisedesign-*/ready")):
            assert process.poll() is None
            time.sleep(0.02)
        children = psutil.Process(process.pid).children(recursive=True)
        assert children
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    outcome = Outcome(process.returncode, out, err)
    assert outcome.code == 130
    assert "Traceback" not in outcome.err
    assert outcome.json()["status"] == "interrupted"
    assert outcome.json()["feasible"] is True
    assert list(scratch.iterdir()) == []
    assert not any(child.is_running() for child in children)


PRESSED = """
import os, runpy, signal, sys
class Press:
    def find_spec(self, name, path=None, target=None):
        if name == MODULE:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Press())
runpy.run_module("noisedesign", run_name="__main__", alter_sys=True)
"""
"""The command, with Ctrl-C at the moment when it begins to load a module."""


@pytest.mark.parametrize(
    "module", ["noisedesign.cli", "click", "noisedesign.cli.designs", "noisedesign.cli.tables"]
)
def test_ctrl_c_while_the_command_is_loading(module: str, tmp_path: Path) -> None:
    code = PRESSED.replace("MODULE", repr(module))
    done = subprocess.run(
        [sys.executable, "-c", code, "solve", str(write(tmp_path, RING))],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=hear_ctrl_c,
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "noisedesign: error: interrupted\n"


def test_ctrl_c_that_is_ignored_stays_so(tmp_path: Path) -> None:
    """As under nohup: whoever starts the command decides."""
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)" + PRESSED
    done = subprocess.run(
        [sys.executable, "-c", code.replace("MODULE", repr("click")), "--version"],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
