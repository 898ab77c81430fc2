"""Formulas of docstrings are read in a terminal, and are formulas on the site."""

from __future__ import annotations

import html
import importlib.util
import inspect
import re
from types import ModuleType

import pytest

import noisedesign as nd
from tests.support import ROOT

latex2mathml = pytest.importorskip("docutils.utils.math.latex2mathml", reason="needs docutils")
pytest.importorskip("sphinx", reason="Sphinx: .[docs] brings it")

FORMULA = re.compile(r":math:`([^`]+)`")

STATED = {
    **{
        name: getattr(nd, name)
        for name in ("SpaceProblem", "TimeProblem", "SpaceTimeProblem", "ErrorMeasure")
    },
    **{name: getattr(nd, name) for name in ("mixing_matrix", "calibrate", "account")},
}
"""What is defined by a formula, and has it in its docstring."""


@pytest.fixture(scope="module")
def formulas() -> ModuleType:
    path = ROOT / "docs" / "_extensions" / "formulas.py"
    spec = importlib.util.spec_from_file_location("formulas", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", STATED)
def test_what_a_formula_defines_has_it(name: str) -> None:
    assert FORMULA.search(inspect.getdoc(STATED[name]) or "")


@pytest.mark.parametrize(
    ("plain", "tex"),
    [
        ("tr(H R)", r"\mathrm{tr}(H R)"),
        ("[R^-1]_ii <= tau_i", r"[R^{-1}]_{ii} \le  \tau _{i}"),
        ("alpha mu^2 / 2", r"\alpha  \mu ^{2} / 2"),
        ("sqrt(2) (sqrt(L + epsilon) - sqrt(L))", r"\sqrt{2} (\sqrt{L + \epsilon } - \sqrt{L})"),
        ("mu = D / noise_stddev", r"\mu  = D / \mathrm{noise\,stddev}"),
    ],
)
def test_plain_letters_become_tex(formulas: ModuleType, plain: str, tex: str) -> None:
    assert formulas.tex_of(plain) == tex


def test_every_formula_of_a_docstring_is_one(formulas: ModuleType) -> None:
    """Each is MathML, and has no words in it that a letter stands for."""
    found = {
        formula
        for folder in ("noisedesign", "lab/noisedesign_lab")
        for path in (ROOT / folder).rglob("*.py")
        for formula in FORMULA.findall(path.read_text(encoding="utf-8"))
    }
    assert len(found) >= 20
    for formula in found:
        drawn = latex2mathml.tex2mathml(formulas.tex_of(" ".join(formula.split())))
        words = html.unescape(re.sub(r"<[^>]*>", "", drawn))
        assert not re.search(r"mu|tau|epsilon|sqrt|\\|_|\^", words), formula
