"""Exporters and backends of other distributions: used by name, judged like ours, to blame alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.design.backends import all_backends, get_backend
from noisedesign.files import exports
from noisedesign.files.exports import exporter, exporter_names, takers
from tests.support.command_line import RING, call, write
from tests.support.distributions import install
from tests.support.small_designs import space_design, time_design

EXPORTER = """
import json

ACCEPTS = ("space",)
DESCRIPTION = "the trace of R"

def export(design, path, *, problem_text=""):
    path.write_text(json.dumps({"trace": float(design.covariance.trace()), "text": problem_text}))
    return (path,)
"""

FORMAT = """
ACCEPTS = ("space", "time")
DESCRIPTION = "names of the arrays"

def write(content, path):
    path.write_text("\\n".join(content.arrays()))
    return (path,)
"""

BACKEND = '''
import numpy as np
from noisedesign.base.monitor import Stop
from noisedesign.conic.solvers import Availability
from noisedesign.design.backends import Backend
from noisedesign.families.family import Answer
from noisedesign.forms import Noise

class Scaled(Backend):
    """Noise R = FACTOR diag(1 / tau), which it calls optimal whatever it is."""

    name = "scaled"
    takes = "problems in space"
    short = "It knows nothing better."
    factor = 1.0
    formulations = ("only",)

    def availability(self):
        return Availability(installed=True, version="7")

    def check_options(self, family, program, options):
        options.refuse("scaled")

    def answer(self, family, program, how):
        noise = Noise.of_covariance(self.factor * np.diag(1 / program.budget))
        return Answer(stop=Stop.SOLVED, noises=[noise], measure=lambda: (0,) * 6)

class TooLittle(Scaled):
    name = "too-little"
    factor = 0.5

class Nothing(Scaled):
    name = "nothing"

    def answer(self, family, program, how):
        return "optimal"

class Late(Scaled):
    name = "late"

    def answer(self, family, program, how):
        def noises():
            raise ZeroDivisionError("in the middle")
            yield
        return Answer(stop=Stop.SOLVED, noises=noises())

class Dense(Scaled):
    name = "dense"

    def answer(self, family, program, how):
        n = len(program.budget)
        noise = Noise.of_covariance(n * np.eye(n) + np.arange(n * n).reshape(n, n) % n * 0.01
            + (np.arange(n * n).reshape(n, n) % n).T * 0.01)
        return Answer(stop=Stop.SOLVED, noises=[noise])

class OtherAxes(Scaled):
    name = "other-axes"

    def answer(self, family, program, how):
        return Answer(stop=Stop.SOLVED, noises=[Noise.of_covariance(np.eye(2))])
'''

BACKENDS = {
    f"backends:{name}": f"their_backends:{kind}"
    for name, kind in (
        ("scaled", "Scaled"),
        ("too-little", "TooLittle"),
        ("nothing", "Nothing"),
        ("late", "Late"),
        ("dense", "Dense"),
        ("other-axes", "OtherAxes"),
    )
}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    yield folder
    for name, module in list(sys.modules.items()):
        if Path(getattr(module, "__file__", None) or "").is_relative_to(folder):
            del sys.modules[name]


@pytest.fixture
def theirs(site: Path) -> Path:
    modules = {"their_traces": EXPORTER, "their_names": FORMAT, "their_backends": BACKEND}
    added = {"exporters:traces": "their_traces", "exporters:array-names": "their_names"}
    install(site, "Their_Noise", entry_points=added | BACKENDS, modules=modules)
    return site


def ring(**more: Any) -> nd.SpaceProblem:
    return nd.SpaceProblem.from_graph(nd.build_graph(kind="ring", nodes=5), **more)


# --- what works ------------------------------------------------------------------------------


def test_without_plugins_there_are_our_own_names_only() -> None:
    assert exporter_names() == (*exports.FORMATS, *exports.TRAINERS)
    assert not [backend for backend in all_backends() if backend.name == "scaled"]


def test_an_exporter_is_used_by_its_name(theirs: Path, tmp_path: Path) -> None:
    assert exporter_names()[-2:] == ("array-names", "traces")
    assert exporter("traces").DESCRIPTION == "the trace of R"
    design = nd.solve(ring()).design
    assert design is not None
    path = tmp_path / "trace.json"
    assert nd.export(design, to="traces", path=path, problem_text="words") == (path,)
    assert json.loads(path.read_text()) == {
        "trace": pytest.approx(np.trace(design.covariance)),
        "text": "words",
    }
    assert {"traces", "array-names"} <= set(takers(design))
    (names,) = nd.export(design, to="array-names", path=tmp_path / "names")
    assert names.read_text().splitlines()[0] == "covariance"


def test_an_exporter_is_told_what_it_takes(theirs: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a space design for traces") as caught:
        nd.export(time_design(), to="traces", path=tmp_path / "t")
    assert "array-names" in caught.value.remedy


def test_a_backend_is_used_by_its_name_and_judged(theirs: Path) -> None:
    """Independent noise R = diag(1 / tau) meets every budget exactly, and is not optimal."""
    problem = ring()
    solution = nd.solve(problem, backend="scaled")
    design = solution.design
    assert design is not None
    assert (solution.backend, solution.status) == ("scaled", "inaccurate")
    assert design.certificate.sensitivity_squared == pytest.approx(1)
    assert design.objective == pytest.approx(np.trace(design.problem.gram))
    assert design.gap > 0.01
    assert solution.errors is None
    assert design.provenance.versions["their-noise"] == "1.2"
    assert nd.verify(design).ok


def test_on_the_command_line(theirs: Path, tmp_path: Path) -> None:
    problem, design = write(tmp_path, RING), tmp_path / "d.npz"
    solved = call("solve", str(problem), "--backend", "scaled", "-o", str(design), "--json")
    assert solved.json()["backend"] == "scaled"
    exported = call("export", str(design), "--to", "traces", "-o", str(tmp_path / "t.json"))
    assert (exported.code, exported.err) == (0, "")
    assert json.loads((tmp_path / "t.json").read_text())["text"] == RING
    listed = {record["name"]: record for record in call("backends", "--json").json()}
    assert listed["scaled"]["version"] == "7 (their-noise)"
    assert listed["scaled"]["ready"]
    refused = call("export", str(design), "--to", "tracks", "-o", str(tmp_path / "u"))
    assert refused.code == 2
    assert "array-names, traces" in refused.err


# --- who never grades itself -----------------------------------------------------------------


def test_noise_that_protects_too_little_is_no_answer(theirs: Path) -> None:
    solution = nd.solve(ring(), backend="too-little")
    assert (solution.status, solution.design) == ("failed", None)


def test_noise_without_the_structure_is_no_answer(theirs: Path) -> None:
    assert nd.solve(ring(), backend="dense").design is not None
    local = ring(structure=nd.SpaceStructure(kind="decor"))
    solution = nd.solve(local, backend="dense")
    assert (solution.status, solution.design) == ("failed", None)


@pytest.mark.parametrize(
    ("name", "words"),
    [("nothing", "expected an Answer"), ("late", "in the middle"), ("other-axes", "noise of the")],
)
def test_what_a_backend_does_wrong_is_its_own_mistake(theirs: Path, name: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        nd.solve(ring(), backend=name)
    assert caught.value.field == "backend"
    assert "their-noise" in str(caught.value)


# --- what is broken --------------------------------------------------------------------------

BROKEN: dict[str, tuple[Mapping[str, str], Mapping[str, str], str]] = {
    "no module": ({"exporters:x": "nowhere", "backends:x": "nowhere"}, {}, "ModuleNotFoundError"),
    "no name": ({"exporters:x": "empty:a", "backends:x": "empty:a"}, {"empty": ""}, "AttributeErr"),
    "raises": (
        {"exporters:x": "raising", "backends:x": "raising"},
        {"raising": "raise KeyError('at import')"},
        "at import",
    ),
    "exits": (
        {"exporters:x": "exiting", "backends:x": "exiting"},
        {"exiting": "raise SystemExit(3)"},
        "SystemExit",
    ),
    "another kind": (
        {"exporters:x": "empty", "backends:x": "empty"},
        {"empty": ""},
        r"ACCEPTS|Backend of noisedesign",
    ),
    "no writer": (
        {"exporters:x": "half", "backends:x": "half:f"},
        {"half": "ACCEPTS = ('time',)\nDESCRIPTION = ''\ndef f(): pass"},
        r"neither export nor write|Backend of noisedesign",
    ),
    "another name": (
        {"exporters:x": "odd", "backends:x": "their_backends:Scaled"},
        {"odd": "ACCEPTS = ('tide',)\nDESCRIPTION = ''", "their_backends": BACKEND},
        r"no tuple of kinds|a backend named 'x', got 'scaled'",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_broken_is_an_error_of_that_name_alone(
    case: str, site: Path, tmp_path: Path
) -> None:
    entry_points, modules, words = BROKEN[case]
    install(site, "broken", entry_points=entry_points, modules=modules)
    with pytest.raises(InputError, match=words) as caught:
        exporter("x")
    assert caught.value.field == "to"
    assert "broken" in str(caught.value)
    with pytest.raises(InputError, match=words) as caught:
        nd.solve(ring(), backend="x")
    assert caught.value.field == "backend"
    assert "broken" in str(caught.value)
    # Everything else goes on.
    assert "npy" in takers(space_design())
    assert "x" not in takers(space_design())
    nd.export(space_design(), to="npy", path=tmp_path / "R.npy")
    assert nd.solve(ring()).status == "optimal"
    listed = {record["name"]: record for record in call("backends", "--json").json()}
    assert not listed["x"]["ready"]
    assert "broken" in listed["x"]["remedy"]
    assert listed["native"]["ready"]
    compared = call("compare", str(write(tmp_path, RING)), "--backends", "native,x")
    assert compared.code == 2
    assert "broken" in compared.err


def test_an_exporter_that_fails_is_told_with_its_distribution(site: Path, tmp_path: Path) -> None:
    source = "ACCEPTS = ('space',)\nDESCRIPTION = ''\ndef export(design, path, **_): "
    modules = {"failing": source + "return {}['here']", "silent": source + "return (path,)"}
    entry_points = {"exporters:failing": "failing", "exporters:silent": "silent"}
    install(site, "broken", entry_points=entry_points, modules=modules)
    for name, words in (("failing", "KeyError: 'here'"), ("silent", "it wrote no")):
        with pytest.raises(InputError, match=words) as caught:
            nd.export(space_design(), to=name, path=tmp_path / "out")
        assert "the distribution broken" in str(caught.value)


def test_a_trainer_of_others_gets_no_noise_that_does_not_protect(
    theirs: Path, tmp_path: Path
) -> None:
    from dataclasses import replace

    central = replace(space_design(), trust="central")
    with pytest.raises(InputError, match="trusted server"):
        nd.export(central, to="traces", path=tmp_path / "t")
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("order", [("one", "two"), ("two", "one")])
def test_a_name_of_two_distributions_is_of_neither(site: Path, order: tuple[str, str]) -> None:
    for name in order:
        entry_points = {"exporters:same": f"{name}_m", "backends:same": f"{name}_m:B"}
        install(site, name, entry_points=entry_points, modules={f"{name}_m": EXPORTER})
    for ask, field in ((exporter, "to"), (get_backend, "backend")):
        with pytest.raises(InputError, match=r"one \(one_m.*\) and two \(two_m") as caught:
            ask("same")
        assert caught.value.field == field
    assert "same" not in takers(space_design())


def test_nobody_takes_a_name_of_ours(site: Path, tmp_path: Path) -> None:
    entry_points = {"exporters:npy": "taker", "backends:native": "taker:B"}
    install(site, "taker", entry_points=entry_points, modules={"taker": "raise SystemExit(1)"})
    path, _ = nd.export(space_design(), to="npy", path=tmp_path / "R.npy")
    np.testing.assert_array_equal(np.load(path), np.eye(3))
    assert nd.solve(ring()).status == "optimal"
    assert exporter_names().count("npy") == 1
    assert [backend.name for backend in all_backends()].count("native") == 1


def test_metadata_that_cannot_be_read_is_passed_over(theirs: Path) -> None:
    install(theirs, "unreadable", entry_points="[noisedesign.exporters]\nno value\n", modules={})
    (theirs / "nameless-1.dist-info").mkdir()
    assert "traces" in exporter_names()
    assert get_backend("scaled").name == "scaled"
