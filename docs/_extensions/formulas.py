r"""Formulas as MathML, which browsers show without a script.

Those of docstrings are written to be read in a terminal, ``mu^2 = D^2 k max_i [R^-1]_ii``, and
become TeX here; those of pages are TeX already.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx

GREEK = {"alpha", "beta", "delta", "epsilon", "gamma", "lambda", "mu", "sigma", "tau", "Delta"}
NAMED = {"exp", "log", "max", "min", "sum"}  # what TeX has a command for
SIGNS = {"<=": r"\le ", ">=": r"\ge ", "!=": r"\ne ", " x ": r" \otimes ", "...": r"\ldots "}
WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}(?:_[a-z]{3,})*")


def tex_of(text: str) -> str:
    """TeX of a formula in plain letters."""
    text = re.sub(r"(?<=[\w\])])_([a-z]{1,2}|\d+)\b", r"_{\1}", text)
    text = re.sub(r"\^(-?\w+)", r"^{\1}", text)
    text = re.sub(r"sqrt\(([^()]*(?:\([^()]*\)[^()]*)*)\)", r"\\sqrt{\1}", text)
    for plain, sign in SIGNS.items():
        text = text.replace(plain, sign)

    def word(found: re.Match[str]) -> str:
        name = found[0]
        if name in GREEK | NAMED:
            return f"\\{name} "
        if found.start() and text[found.start() - 1] == "{" and len(name) == 2:
            return name  # two indices
        return rf"\mathrm{{{name}}}".replace("_", r"\,")

    return WORD.sub(word, text)


def _math(self: Any, node: nodes.Node, *, block: bool) -> None:
    """MathML in the place of a formula; what is wider than the page is scrolled to."""
    tex = node.astext()
    if "\\" not in tex and self.builder.current_docname.startswith("reference/names/"):
        tex = tex_of(tex)
    for written, read in (r"\dots", r"\ldots"), (r"\mathbin{\#}", r"\#"):
        tex = tex.replace(written, read)
    formula = tex2mathml(tex, as_block=block)
    self.body.append(f'<div style="overflow-x: auto">{formula}</div>' if block else formula)
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer(
        "mathml",
        (lambda self, node: _math(self, node, block=False), None),
        (lambda self, node: _math(self, node, block=True), None),
    )
    return {"parallel_read_safe": True}
