"""The site: ``make docs`` builds it from these pages, without a network."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

import noisedesign

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_extensions"))

project = "noisedesign"
author = "the authors of noisedesign"
copyright = author
release = noisedesign.__version__.partition("+")[0]

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_click",
    "formulas",
    "names",
    "pictures",
    "sought",
]
exclude_patterns = ["_build"]
nitpicky = False  # annotations name types of NumPy and private aliases

# --- pages ------------------------------------------------------------------------------------

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_fence_as_directive = ["math"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # notebooks are stored with what they printed
highlight_language = "none"

# --- Python -----------------------------------------------------------------------------------

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_default_options = {"members": True}
napoleon_use_ivar = True  # fields of results are members already
autosummary_generate = False
autodoc_mock_imports = [
    *("decentralizepy", "flwr", "jax", "jax_privacy", "keras", "lightning", "opacus", "opake"),
    *("optax", "pfl", "torch", "transformers"),
]
# What they have is known from the files here, and no build asks a network for it.
intersphinx_mapping = {
    name: (address, str(HERE / "inventories" / f"{name}.txt"))
    for name, address in {
        "networkx": "https://networkx.org/documentation/stable/",
        "numpy": "https://numpy.org/doc/stable/",
        "python": "https://docs.python.org/3/",
        "scipy": "https://docs.scipy.org/doc/scipy/",
    }.items()
}
viewcode_line_numbers = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False

# --- HTML -------------------------------------------------------------------------------------

html_theme = "furo"
html_title = f"noisedesign {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["copy.js"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}


def _gallery(app: Sphinx) -> None:
    """Notebooks live outside this folder: their copies are not committed."""
    for copy in (HERE / "gallery").glob("*.ipynb"):
        copy.unlink()
    for notebook in sorted((HERE.parent / "notebooks").glob("*.ipynb")):
        shutil.copy(notebook, HERE / "gallery" / notebook.name)


ELSEWHERE = {
    "networkx.classes.digraph.DiGraph": "networkx.DiGraph",
    "networkx.classes.graph.Graph": "networkx.Graph",
    "numpy.random._generator.Generator": "numpy.random.Generator",
    "numpy.random.bit_generator.SeedSequence": "numpy.random.SeedSequence",
    "scipy.sparse._csr.csr_array": "scipy.sparse.csr_array",
}
"""Names by the modules that other packages define them in, and by those that they document."""


ARRAY = re.compile(r"(numpy\.ndarray)\[tuple\[[^]]*\], ~?numpy\.dtype\[[^]]*\]\]")


def _signature(app: Sphinx, what: Any, name: str, of: Any, options: Any, *given: str | None) -> Any:
    """An array is an array in signatures: docstrings have shapes."""
    return tuple(text and ARRAY.sub(r"\1", text) for text in given)


def _elsewhere(app: Sphinx, env: Any, node: Any, text: Any) -> None:
    """What is asked for by the first is looked for by the second."""
    node["reftarget"] = ELSEWHERE.get(node["reftarget"], node["reftarget"])


def _read(app: Sphinx, name: str, source: list[str]) -> None:
    """Files that pages here include are those pages; $`x`$, as GitHub has it, is $x$."""
    up = "../" * (name.count("/") + 1)
    text = source[0].replace(f"]({up}problems/README.md", "](/reference/problem-files.md")
    text = text.replace(f"]({up}CHANGELOG.md", "](/changelog.md")
    source[0] = re.sub(r"\$`([^`]+)`\$", r"$\1$", text)


def setup(app: Sphinx) -> None:
    app.connect("builder-inited", _gallery)
    app.connect("source-read", _read)
    app.connect("autodoc-process-signature", _signature)
    app.connect("missing-reference", _elsewhere, priority=100)  # before other packages are asked


html_math_renderer = "mathml"
