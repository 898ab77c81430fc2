"""One function for every file, which its content tells apart."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.files.design_file import StoredDesign, load_design
from noisedesign.files.exports import Exported
from noisedesign.files.problem_file import LoadedProblem, load_problem
from noisedesign.files.unbounded_file import StoredUnboundedDesign
from noisedesign.surveys.sweep_file import Sweep
from noisedesign.tasks.account.request import AccountRequest

W = np.array([[0.75, 0.25], [0.25, 0.75]])
SHIPPED = {
    "whisper/florentine": LoadedProblem,
    "accounts/ring-decor-secldp": AccountRequest,
    "sweeps/random-graphs.toml": Sweep,
}


@pytest.fixture
def design(tmp_path: Path) -> tuple[nd.Design, Path]:
    found = nd.solve(nd.SpaceProblem(mixing=W)).design
    assert found is not None
    return found, nd.save(found, tmp_path / "d.npz")


@pytest.mark.parametrize("name", SHIPPED)
def test_toml_is_told_by_its_tables(name: str, tmp_path: Path) -> None:
    assert isinstance(nd.load(name), SHIPPED[name])
    (shipped,) = (f.path for f in nd.shipped_problems() if f.name == name.removesuffix(".toml"))
    renamed = tmp_path / "of-another-name.txt"
    renamed.write_bytes(shipped.read_bytes())
    assert isinstance(nd.load(renamed), SHIPPED[name])


def test_designs_and_what_was_exported(design: tuple[nd.Design, Path], tmp_path: Path) -> None:
    held, path = design
    assert isinstance(nd.load(path), StoredDesign)
    assert (nd.load(str(path)).design.covariance == held.covariance).all()
    renamed = path.rename(tmp_path / "design")
    assert (nd.load(renamed).design.covariance == held.covariance).all()
    endless = nd.solve(nd.UnboundedProblem(buffers=2))
    assert isinstance(nd.load(nd.save(endless, tmp_path / "u.npz")), StoredUnboundedDesign)
    for to in ("npy", "csv", "mat", "safetensors"):
        main, *_ = nd.export(held, to=to, path=tmp_path / f"{to}.{to}")
        found = nd.load(main)
        assert isinstance(found, Exported)
        assert (found.noise.covariance == held.covariance).all()


def test_the_mixing_of_a_problem_and_of_nothing_else(design: tuple[nd.Design, Path]) -> None:
    graph = '[graph]\nkind = "path"\nnodes = 2\nweights = "fastest-mixing"\n'
    path = design[1].with_name("p.toml")
    path.write_text('name = "p"\ndesign = "space"\n[limits]\nmax_variance = 9\n' + graph)
    half = np.full((2, 2), 0.5)
    assert (nd.load(path, mixing=half).problem.mixing == half).all()
    for other in (design[1], "sweeps/random-graphs"):
        with pytest.raises(InputError) as refused:
            nd.load(other, mixing=half)
        assert refused.value.field == "mixing"


def error_of(call: Any) -> str:
    with pytest.raises(InputError) as refused:
        call()
    return str(refused.value)


def test_errors_are_those_of_the_kind_that_is_meant(
    design: tuple[nd.Design, Path], tmp_path: Path
) -> None:
    content = design[1].read_bytes()
    wrong = {
        "cut.npz": content[:-100],
        "cut": content[:100],
        "empty.npz": b"",
        "pickle.npz": pickle.dumps([1.0]),
        "pickle": pickle.dumps([1.0]),
        "text.npz": b"name = 1",
    }
    for name, data in wrong.items():
        path = tmp_path / name
        path.write_bytes(data)
        assert error_of(lambda at=path: nd.load(at)) == error_of(lambda at=path: load_design(at))
    tomls = {
        "empty.toml": b"",
        "no.toml": b"= 3",
        "latin.toml": 'name = "\u00e9"'.encode("latin-1"),
        "wrong.toml": b'name = "p"\ndesign = "spice"',
        "training.toml": b'mechanisms = ["none"]',
        "text": b"name = 1",
        "picture": b"\x89PNG\r\n",
    }
    for name, data in tomls.items():
        path = tmp_path / name
        path.write_bytes(data)
        assert error_of(lambda at=path: nd.load(at)) == error_of(lambda at=path: load_problem(at))
    for missing in ("whisper/florentin", tmp_path, "nothing.toml"):
        said = error_of(lambda at=missing: nd.load(at))
        assert said == error_of(lambda at=missing: load_problem(at))
    assert error_of(lambda: nd.load("no.npz")) == error_of(lambda: load_design("no.npz"))
    for value in (3, None, ["a"]):
        assert "path" in error_of(lambda at=value: nd.load(at))
