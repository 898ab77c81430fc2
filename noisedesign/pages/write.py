"""One self-contained page about one design: no network, no other file, nothing that runs."""

from __future__ import annotations

import platform
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from noisedesign.base.atomic import check_replaceable, overwriting, target_of, write_text
from noisedesign.base.checks import InputError
from noisedesign.base.extras import need
from noisedesign.base.file_kinds import PAGE
from noisedesign.base.shown import shortened
from noisedesign.base.version import version
from noisedesign.certify.certificate import Certificate
from noisedesign.design.design import PROTECTS, Design
from noisedesign.families.toeplitz.streaming import StreamingDesign
from noisedesign.files.design_file import StoredDesign, StoredStreamingDesign, as_stored
from noisedesign.files.unbounded_file import StoredUnboundedDesign
from noisedesign.forms import BandedInverse, SparseCovariance
from noisedesign.mechanisms.baselines import published
from noisedesign.pages import noise, pictures, plot, privacy
from noisedesign.pages.content import (
    Code,
    Facts,
    Page,
    Part,
    Pictures,
    Section,
    Table,
    Text,
    vectors,
)
from noisedesign.pages.recommendation import Ranked, page_of_recommendation
from noisedesign.problem.calibration import calibration_of
from noisedesign.tasks.verify import DIGEST, Verification, verify

Stored = StoredDesign | StoredStreamingDesign
MOST_NODES, MOST_STEPS, MOST_PAIRS = 1200, 1100, 1100  # seconds for baselines
_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")  # not in HTML

_CORRELATED = {
    "space": "across nodes, independent from step to step",
    "time": "from step to step, independent across nodes",
    "space-time": "across nodes and from step to step",
}

_FAILED = (InputError, np.linalg.LinAlgError, ArithmeticError)  # of a matrix that is none of noise


def report(design: Any, *, path: str | Path, overwrite: bool = False) -> Path:
    """Write a page (HTML) that says what a design is, whom it protects and why it is believed.

    The graph, R or C^-1, spectra, who shares what, privacy under every threat model, noise against
    baselines, the certificate, how to verify and reproduce it, settings and versions. The design
    is verified while the page is written, and the page says what was found. Nothing that its file
    names is opened, and nothing of it becomes markup.

    Of a recommendation the page has the ranking, what would change it, and the code of the first.

    Args:
        design: a design, a streaming design, a solution, what ``load`` returns, or a
            :class:`noisedesign.results.Recommendation`.
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
    ranked = isinstance(design, Ranked)
    stored = design if ranked else as_stored(design)
    with overwriting(overwrite):
        target_of(path)  # before the work
        check_replaceable(path, PAGE)
        return write_page(page_of_recommendation(stored) if ranked else page_of(stored), path)


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
    if isinstance(stored, StoredUnboundedDesign):
        expected, got = "a design of some number of steps", "one of a run without an end"
        remedy = "`noisedesign verify` says all that is known of it."
        raise InputError("design", expected=expected, got=got, remedy=remedy)
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
        sections = _streaming_sections(design, made)
    sections += [
        _certificate_section(design.certificate, found, certificate, made),
        _reproduce_section(stored, file),
        _provenance_section(stored),
    ]
    return Page(
        title=f"Noise design: {name}",
        summary=summary,
        verdict=_verdict_of(found),
        unchecked=_unchecked(found),
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
        facts |= {"certified lower bound": design.lower_bound, "gap": design.gap}
        facts["keeps its budgets"] = design.certificate.feasible
    return Facts(facts)


def _sections(design: Design, made: Pictures) -> list[Section]:
    if design.problem.sparse:
        return _sparse_sections(design)
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


# --- the certificate, and how to do it all again --------------------------------------------------


def _verdict_of(found: Verification) -> str:
    if not found.ok:
        wrong = ", ".join(check.name for check in found.checks if check.ok is False)
        return (
            f"A claim of this design is wrong ({wrong}). Numbers below are what its file claims "
            "where nothing else is said: do not use it."
        )
    return (
        "Verified while this page was written: every claim that could be checked holds, computed "
        "again from the arrays of the design in plain NumPy."
    )


def _unchecked(found: Verification) -> str:
    """List what nobody has checked, which is neither good nor bad."""
    if not found.not_checked:
        return ""
    names = ", ".join(found.not_checked)
    return f"Not checked: {names}. The rows under Certificate say why."


def _certificate_section(
    certificate: Certificate, found: Verification, design: Design | None, made: Pictures
) -> Section:
    claims = {
        "objective tr(H cov(z)), squared noise": certificate.objective,
        "certified lower bound": certificate.lower_bound,
        "gap (objective / bound - 1)": certificate.gap,
        "keeps its budgets": certificate.feasible,
        "squared sensitivity over its budget": f"{certificate.sensitivity_squared:.9g} "
        f"({certificate.sensitivity_kind})",
        "largest variance over its cap": certificate.variance_ratio,
        "largest floor over its variance": certificate.floor_ratio,
    }
    wider = "objective over the bound on designs of every structure"
    claims[wider] = certificate.relative_to_unrestricted
    text = (
        "The lower bound is certified by multipliers that are stored with the design: no noise "
        "within the same budgets has a smaller objective. A solver's word is not used."
    )
    if design is not None and design.trust == "central":
        text = "Noise of a trusted server claims neither the budgets of single nodes nor a bound."
        claims = {"objective tr(H cov(z)), squared noise": certificate.objective}
    elif design is None or design.local or certificate.lower_bound <= 0:
        text = (
            "The noise is the best that a search found. The bound is one on designs of every "
            "structure, where there is one: the best of this structure may lie between."
        )
    verdicts, rows = {None: "not checked", True: "holds", False: "WRONG"}, []
    for check in found.checks:
        both = (check.claimed, check.found)
        values = [shortened(one, DIGEST) if isinstance(one, str) else one for one in both]
        ok = None if check.ok is None else bool(check.ok)
        rows.append([check.name, verdicts[ok], *values, check.note])
    bad = frozenset(k for k, check in enumerate(found.checks) if check.ok is False)
    columns = ["claim", "verdict", "claimed", "found", "note"]
    parts: list[Part] = [Facts(claims), Text(text)]
    parts.append(Table("Verified anew while this page was written", columns, rows, bad))
    if design is not None and design.provenance.history:
        caption = "Both bounds while the design was found: the best noise so far, and what is "
        caption += "certified of all noise."
        title = "Convergence of the two bounds"
        parts.append(made.add(title, caption, plot.draw_convergence, design))
    return Section("certificate", "Certificate", parts)


def _reproduce_section(stored: Stored, file: str) -> Section:
    name = shlex.quote(file)
    lines = [
        f"noisedesign verify {name}                          # every claim, anew",
        f"noisedesign verify {name} --problem PROBLEM.toml   # and against a problem you trust",
        f"noisedesign account {name}                         # what every observer learns",
    ]
    if isinstance(stored, StoredDesign):
        blanks = " " * 24
        lines.append(f"noisedesign simulate {name}{blanks}# its noise, drawn and audited")
    lines.append(f"noisedesign report {name} -o report.html           # this page")
    script = f"import noisedesign as nd\n\nstored = nd.load({file!r})\n"
    script += "print(nd.verify(stored))"
    parts: list[Part] = [
        Text(
            "A page can say anything. The design file holds the arrays, and these commands "
            "compute everything from them; nothing that a file names is opened."
        ),
        Code("At a shell:", "\n".join(lines)),
        Code("From Python:", script),
    ]
    if stored.problem_text:
        text = stored.problem_text[:20_000]
        if more := len(stored.problem_text) - len(text):
            text += f"\n... and {more} more characters"
        backend = getattr(stored.design, "provenance", None)
        by = f" --backend {shlex.quote(backend.backend)}" if backend is not None else ""
        parts += [
            Code("The problem it was made from, PROBLEM.toml:", text),
            Code("To find it again:", f"noisedesign solve PROBLEM.toml{by} -o {name}"),
        ]
    else:
        parts.append(Text("The file does not hold the problem file it was made from."))
    return Section("reproduce", "Verify and reproduce", parts)


def _provenance_section(stored: Stored) -> Section:
    manifest, design = stored.manifest, stored.design
    facts: dict[str, Any] = {"written by": f"noisedesign {manifest['library']}"}
    if isinstance(design, Design):
        made = design.provenance
        facts |= {
            "method": made.method,
            "backend": made.backend,
            "status": made.status,
            "evaluations of the bounds": made.evaluations,
            "seconds to build": made.build_seconds,
            "seconds to solve": made.solve_seconds,
            "versions": ", ".join(f"{n} {v}" for n, v in made.versions.items()) or None,
        }
    else:
        facts |= {"search ended": design.stop.value, "evaluations": design.evaluations}
    numpy, python = np.__version__, platform.python_version()
    facts["this page"] = f"noisedesign {version()}, numpy {numpy}, Python {python}"
    rows = [
        [name, entry["kind"], " x ".join(map(str, entry["shape"])), entry["sha256"]]
        for name, entry in manifest["arrays"].items()
    ]
    columns = ["array", "what it is", "shape", "sha256 of its float64 numbers"]
    arrays = Table("Arrays of the design", columns, rows)
    return Section("provenance", "Settings, versions, provenance", [Facts(facts), arrays])


# --- designs of which nothing is of the size of a matrix ------------------------------------------


def _sparse_sections(design: Design) -> list[Section]:
    """The sections of a design on a graph of which W stays sparse."""
    mixing: Any = design.problem.mixing
    space = design.noise.space
    assert isinstance(space, SparseCovariance)
    degrees = np.diff(mixing.indptr) - (mixing.diagonal() != 0)
    facts = {
        "nodes": mixing.shape[0],
        "weights between nodes": int(degrees.sum()),
        "neighbours of a node": f"{degrees.min()} to {degrees.max()}, {degrees.mean():.3g} on "
        "average",
        "self weights": f"{mixing.diagonal().min():.3g} to {mixing.diagonal().max():.3g}",
    }
    text = (
        f"R, the covariance of the noise of all nodes, is {space.kind}: it follows from the "
        "numbers below, and from W where it is polynomial. R itself is nowhere."
    )
    rows = [[what, space.arrays()[name].size] for name, what in space.names.items()]
    table = Table("What the noise is made of", ["array", "numbers"], rows)
    found = calibration_of(design.problem)
    unknown = Text("What single nodes learn takes n x n arrays, and is not computed here.")
    promise = privacy.promise_of(design.problem.privacy, found)
    told = privacy.eavesdropped(found.mu, "What an observer learns")
    compared = {
        "objective": design.objective,
        "of independent noise": design.ldp_objective,
        "over independent noise at equal privacy": design.relative_to_ldp,
        "over the bound on noise of every structure, at most": 1 + design.gap,
        "confidence of objective and bound": design.certificate.confidence,
    }
    return [
        Section("graph", "Graph", [Facts(facts)]),
        Section("noise", "Noise", [Text(text), table]),
        Section("sharing", "Who shares what", [Text(space.drawn)]),
        Section("privacy", "Privacy", [*promise, unknown, *told]),
        Section("baselines", "Noise against baselines", [Facts(compared)]),
    ]


def _streaming_sections(design: StreamingDesign, made: Pictures) -> list[Section]:
    """Noise, spectrum, who shares what, privacy and baselines of a design for any horizon."""
    strategy, horizon = design.strategy, design.horizon
    lags = min(horizon, 65_536)
    column = strategy.at(lags).noising_column(lags)
    told = f" (the first {lags} of {horizon})" if lags < horizon else ""
    caption = (
        f"First column of C⁻¹{told}: at every step, what noise of so many steps before is added "
        "or taken back."
    )
    drawn = (column, "size of the coefficient of C⁻¹", True)
    first_column = made.add("First column of C^-1", caption, pictures.draw_lags, *drawn)
    power = np.square(np.abs(np.fft.rfft(column, n=4 * lags)))
    caption = (
        "Power of the noise by frequency: little at low frequencies, where the sum over many "
        "steps would pile it up."
    )
    spectrum = made.add("Power by frequency", caption, pictures.draw_frequencies, power)
    text = (
        f"C is {strategy.kind}, constant along its diagonals, in "
        f"{sum(a.size for a in strategy.at(horizon).arrays().values())} numbers, for {horizon} "
        "steps."
    )
    graph = "A streaming design has no graph: every node, or a server, uses its noise alone."
    shared = (
        "Nothing is shared: whoever uses the noise draws it alone, from a seed of its own. Between "
        f"steps it keeps {vectors(strategy.vectors_kept(horizon))}."
    )
    scheme = design.participation
    who = (
        f"For a record with participation {scheme}, at most {scheme.largest_size} of "
        f"{scheme.horizon} steps. There is no graph, so nobody is a neighbour who sees less."
    )
    promise = privacy.promise_of(design.privacy, design.calibration)
    learnt = privacy.eavesdropped(design.calibration.mu, "What every observer learns")
    alone = BandedInverse(coefficients=np.ones(1), steps=horizon)
    sensitivity = alone.squared_sensitivity(scheme).squared
    independent = alone.squared_error(design.workload) * sensitivity
    facts = {
        "objective": design.objective,
        "of independent noise": independent,
        "over independent noise at equal privacy": design.objective / independent,
        "over the bound on strategies of every structure, at most": 1 + design.excess_upper_bound,
    }
    return [
        Section("graph", "Graph", [Text(graph)]),
        Section("noise", "Noise", [Text(text), first_column]),
        Section("spectra", "Spectra", [spectrum]),
        Section("sharing", "Who shares what", [Text(shared)]),
        Section("privacy", "Privacy under every threat model", [*promise, Text(who), *learnt]),
        Section("baselines", "Noise against baselines", [Facts(facts)]),
    ]
