"""The certificate of a design, what verifying it anew found, and how to do it all again."""

from __future__ import annotations

import platform
import shlex
from typing import Any

import numpy as np

from noisedesign.base.shown import shortened
from noisedesign.base.version import version
from noisedesign.certify.certificate import Certificate
from noisedesign.design.design import Design
from noisedesign.files.design_file import StoredDesign, StoredStreamingDesign
from noisedesign.pages import plot
from noisedesign.pages.content import Code, Facts, Part, Pictures, Section, Table, Text
from noisedesign.tasks.verify import DIGEST, Verification

Stored = StoredDesign | StoredStreamingDesign


def verdict_of(found: Verification) -> str:
    if not found.ok:
        wrong = ", ".join(check.name for check in found.checks if check.ok is False)
        return (
            f"A claim of this design is wrong ({wrong}). Numbers below are what its file claims "
            "where nothing else is said: do not use it."
        )
    skipped = f" Not checked: {', '.join(found.not_checked)}." if found.not_checked else ""
    return (
        "Verified while this page was written: every claim that could be checked holds, computed "
        f"again from the arrays of the design in plain NumPy.{skipped}"
    )


def certificate_section(
    certificate: Certificate, found: Verification, design: Design | None, made: Pictures
) -> Section:
    claims = {
        "objective tr(H cov(z)), squared noise": certificate.objective,
        "proved lower bound": certificate.lower_bound,
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
        "The lower bound is proved by multipliers that are stored with the design: no noise within "
        "the same budgets has a smaller objective. A solver's word is not used."
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
        caption += "proved of all noise."
        title = "Convergence of the two bounds"
        parts.append(made.add(title, caption, plot.draw_convergence, design))
    return Section("certificate", "Certificate", parts)


def reproduce_section(stored: Stored, file: str) -> Section:
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
    script = f"import noisedesign as nd\n\nstored = nd.load_design({file!r})\n"
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


def provenance_section(stored: Stored) -> Section:
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
