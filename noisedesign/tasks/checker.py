"""A design before the checker that was extracted from its proof: docs/guides/proofs.md."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from noisedesign.base.checks import InputError
from noisedesign.design.design import Design
from noisedesign.tasks.theorem import claim_of
from noisedesign.tasks.verify import Check

FIELD, ENVIRONMENT = "checker", "NOISEDESIGN_CHECKER"
PROOFS = Path(__file__).resolve().parents[2] / "proofs"  # of a checkout
BUILD = "sh proofs/build.sh --checker"
VERDICTS = {(0, "accepted\n"): True, (1, "refused\n"): False}  # by exit code and what is printed


def checker_at(given: str | None) -> Path:
    """Return the program: that given, or of the environment, or built in this checkout."""
    named = given or os.environ.get(ENVIRONMENT)
    path = Path(named) if named else PROOFS / "checker" / "build" / "noisedesign-check"
    if not os.access(path, os.X_OK) or path.is_dir():
        raise InputError(
            FIELD,
            expected="the program that was extracted from the proofs",
            got=f"none at {path}",
            remedy=f"`{BUILD}` builds it in a checkout, with what docs/guides/proofs.md names; "
            f"--checker and {ENVIRONMENT} say where it is elsewhere.",
        )
    return path


def checked(design: Design, checker: Path) -> Check:
    """Return what the checker says of a design, or refuse a design that it does not cover."""
    claim = claim_of(design)
    command = [checker.absolute()]
    try:
        done = subprocess.run(command, input=claim.numbers, capture_output=True, text=True)
    except OSError as error:
        raise InputError(FIELD, expected="a program that runs", got=str(error)) from None
    verdict = VERDICTS.get((done.returncode, done.stdout))
    if verdict is None:
        said = (done.stderr or done.stdout).strip() or "nothing"
        got = f"code {done.returncode} of {checker}, which said: {said}"
        raise InputError(FIELD, expected="accepted or refused", got=got, remedy=f"Build: {BUILD}.")
    return Check("verified", verdict, note=f"gap {claim.gap:.3g} at most, by {checker}")
