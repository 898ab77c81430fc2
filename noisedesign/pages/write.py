"""One self-contained page about one design: no network, no other file, nothing that runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from noisedesign.base.atomic import check_replaceable, overwriting, target_of, write_text
from noisedesign.base.checks import InputError
from noisedesign.base.extras import need
from noisedesign.base.file_kinds import PAGE
from noisedesign.base.version import version
from noisedesign.design.design import PROTECTS, Design
from noisedesign.files.design_file import as_stored
from noisedesign.mechanisms.baselines import published
from noisedesign.pages import large, noise, privacy, proof
from noisedesign.pages.content import Facts, Page, Pictures, Section, Text
from noisedesign.problem.calibration import calibration_of
from noisedesign.tasks.verify import verify

MOST_NODES, MOST_STEPS, MOST_PAIRS = 1200, 1100, 1100
"""Nodes, steps, and coordinates of a full design in space and time up to which published mechanisms
are computed beside it: seconds."""

_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""Control characters, which HTML cannot hold."""

_CORRELATED = {
    "space": "across nodes, independent from step to step",
    "time": "from step to step, independent across nodes",
    "space-time": "across nodes and from step to step",
}

_FAILED = (InputError, np.linalg.LinAlgError, ArithmeticError)
"""Errors of a matrix that is none of noise; verifying has said what is wrong with it."""


def report(design: Any, *, path: str | Path, overwrite: bool = False) -> Path:
    """Write a page (HTML) that says what a design is, whom it protects and why it is believed.

    The graph, R or C^-1, spectra, who shares what, privacy under every threat model, noise against
    baselines, the certificate, how to verify and reproduce it, settings and versions. The design
    is verified while the page is written, and the page says what was found. Nothing that its file
    names is opened, and nothing of it becomes markup.

    Args:
        design: a design, a streaming design, a solution, or what ``load_design`` returns.
        path: where the page goes.
        overwrite: replace a file even if it is no page of this package.

    Returns:
        The path.

    Raises:
        InputError: no design; a folder that does not exist, a file of another kind; a design file
            that states a problem of far more work than its arrays.
        StorageError: the file cannot be written; an existing one stays as it was.

    Examples:
        The page of a ring of four nodes, in a folder that is gone afterwards.

        >>> import tempfile
        >>> from pathlib import Path
        >>> import noisedesign as nd
        >>> ring = nd.SpaceProblem.from_graph(nd.build_graph("ring", nodes=4))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     page = nd.report(nd.solve(ring), path=Path(folder, "ring.html"))
        ...     print(page.name, "Verified while this page was written" in page.read_text("utf-8"))
        ring.html True
    """
    for package in ("jinja2", "matplotlib"):
        need(package, field="output")
    stored = as_stored(design)
    with overwriting(overwrite):
        target_of(path)  # before the work
        check_replaceable(path, PAGE)
        return write_page(page_of(stored), path)


def write_page(page: Page, path: str | Path) -> Path:
    """Write a page, whole or not at all; it raises as :func:`report` does."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # late: an extra brings it

    environment = Environment(
        loader=PackageLoader("noisedesign.pages", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = environment.get_template("page.html.jinja").render(page=page)
    return write_text(path, _UNSEEN.sub("\ufffd", text))


def page_of(design: Any) -> Page:
    """The page of :func:`report`; its ``holds`` is whether no claim of the design is wrong."""
    stored = as_stored(design)
    found, made = verify(stored), Pictures()
    file = stored.path.name or "design.npz"
    design = stored.design
    if isinstance(design, Design):
        name, nodes = design.problem.name, len(design.problem.nodes)
        where = "" if design.problem.mixing is None else f" in a network of {nodes}"
        summary = f"Gaussian noise that is correlated {_CORRELATED[design.axes]}, for private "
        summary += f"learning{where}."
        facts, sections = _facts(design), _sections(design, made)
        certificate: Design | None = design
    else:
        name, facts, certificate = design.name, Facts(design._facts()), None
        summary = f"Noise that every node draws for itself over {design.horizon} steps."
        sections = large.streaming_sections(design, made)
    sections += [
        proof.certificate_section(design.certificate, found, certificate, made),
        proof.reproduce_section(stored, file),
        proof.provenance_section(stored),
    ]
    return Page(
        title=f"Noise design: {name}",
        summary=summary,
        verdict=proof.verdict_of(found),
        holds=found.ok,
        facts=facts,
        sections=sections,
        made_by=f"Written by noisedesign {version()} from {file}.",
    )


def _facts(design: Design) -> Facts:
    problem, found = design.problem, calibration_of(design.problem)
    promised, target = "none stated", problem.privacy
    if target is not None:
        promised = f"({target.epsilon:g}, {target.delta:g})-DP, {target.adjacency}, "
        promised += f"clip {target.clip:g}"
    facts: dict[str, object] = {
        "privacy target": promised,
        "noise multiplier": found.noise_multiplier if target is not None else None,
        "protects": PROTECTS[design.trust],
        "nodes": len(problem.nodes) if problem.mixing is not None else None,
        "steps": found.horizon,
        "noise, over independent noise at equal privacy": design.relative_to_ldp,
        "objective": design.objective,
    }
    if design.trust != "central":
        facts |= {"proved lower bound": design.lower_bound, "gap": design.gap}
        facts["keeps its budgets"] = design.certificate.feasible
    return Facts(facts)


def _sections(design: Design, made: Pictures) -> list[Section]:
    if design.problem.sparse:
        return large.sections_of(design)
    others, reason = _baselines(design)
    return [
        noise.graph_section(design, made),
        _tried("noise", "Noise", lambda: noise.noise_section(design, made)),
        _tried("spectra", "Spectra", lambda: noise.spectra_section(design, others, made)),
        _tried("sharing", "Who shares what", lambda: noise.sharing_section(design, made)),
        privacy.privacy_section(design, made),
        privacy.baselines_section(design, others, reason, made),
    ]


def _tried(anchor: str, title: str, write: Callable[[], Section]) -> Section:
    try:
        return write()
    except _FAILED as error:
        return Section(anchor, title, [Text(f"Not computed: {error}", "warning")])


def _baselines(design: Design) -> tuple[Sequence[Design], str]:
    problem = design.problem
    steps = design.noise.strategy.horizon if design.noise.strategy is not None else 1
    most = MOST_PAIRS if design.noise.full else MOST_STEPS
    if len(problem.nodes) > MOST_NODES or steps > most:
        return (), "computing them would take long; `noisedesign baselines` does on a problem file."
    try:
        return published(problem, dual=design), ""
    except _FAILED as error:
        return (), f"{error}"
