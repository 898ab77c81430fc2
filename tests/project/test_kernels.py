"""The runner of tests under other kernels: what it picks, what it says, what it returns."""

from __future__ import annotations

import platform
import subprocess
import sys
from typing import Any

import pytest

from tests.support import kernels


@pytest.mark.parametrize(
    ("here", "other"),
    [("Haswell", "Prescott"), ("Zen", "Prescott"), ("Katmai", "Haswell"), ("SkylakeX", "Haswell")],
)
def test_the_other_kernels(here: str, other: str) -> None:
    assert kernels.another(here) == other


def test_kernels_that_nobody_has_cannot_run() -> None:
    assert not kernels.can_run("Nonsense")


def test_kernels_are_those_asked_for() -> None:
    if platform.machine() != "x86_64" or not kernels.chosen():
        pytest.skip("not OpenBLAS on a processor of this family")
    assert kernels.can_run("Prescott")  # as every x86-64 does
    assert kernels.chosen("Prescott") != kernels.chosen("Haswell")


def test_a_slip_of_the_pen_is_no_pass() -> None:
    with pytest.raises(SystemExit) as error:
        kernels.main(["Hasswell"])
    assert error.value.code == 2


def test_every_verdict_is_printed_and_any_failure_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = []

    def run(command: list[str], *, env: dict[str, str], **words: Any) -> Any:
        kernel = env.get("OPENBLAS_CORETYPE", "SkylakeX")
        if "-c" in command:  # a processor without AVX-512 dies of such an instruction
            died = kernel == "SkylakeX" and "OPENBLAS_CORETYPE" in env
            return subprocess.CompletedProcess(command, -4 if died else 0, stdout=kernel + "\n")
        assert command[:3] == [sys.executable, "-m", "pytest"]
        ran.append(kernel)
        return subprocess.CompletedProcess(command, int(kernel == "Zen"))

    monkeypatch.setattr(subprocess, "run", run)
    assert kernels.main([]) == 1
    assert ran == ["Haswell", "Zen", "Sandybridge", "Prescott"]
    said = [line.split() for line in capsys.readouterr().out.splitlines()]
    verdicts = {line[0]: line[1] for line in said if line and line[0] in kernels.KERNELS}
    assert verdicts == {
        "Haswell": "passed",
        "Zen": "failed",
        "SkylakeX": "cannot",
        "Sandybridge": "passed",
        "Prescott": "passed",
    }
    ran.clear()
    assert kernels.main(["another"]) == 0
    assert ran == ["Haswell"]
