"""The README is short and opens with what a reader wants; ``test_pages`` runs it."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from typing import get_args

import pytest

from noisedesign.base.version import RELEASE
from noisedesign.files.account_file import observer_tables
from tests.support import pages

TEXT = pages.read(pages.README)


def test_it_is_short() -> None:
    assert len(TEXT.split()) <= 1000


def test_it_opens_with_the_two_commands_and_a_picture() -> None:
    first = pages.blocks(TEXT)[0]
    assert [line.split("#")[0].split() for line in first.text.splitlines()] == [
        ["make", "demo"],
        ["make", "test"],
    ]
    assert TEXT.index("](docs/pictures/") < TEXT.index("\n## ")


def test_it_has_a_recommendation_and_one_example_in_python_and_one_in_a_shell() -> None:
    assert [block.language for block in pages.blocks(TEXT)] == [
        *("sh", "sh", "text", "sh", "python", "text", "console")
    ]


@pytest.mark.slow
def test_the_recommendation_is_what_is_printed() -> None:
    command, shown = pages.blocks(pages.section(TEXT, "Which noise is best for me?"))
    words = [
        sys.executable,
        "-m",
        *shlex.split(command.text.replace("\\\n", " ")),
        "--time-limit",
        "900",
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    pages.assert_shown(shown.text, done.stdout + done.stderr, "README.md")


def test_it_names_every_threat_model() -> None:
    rows = pages.table_with(TEXT, "threat model", "who looks")
    named = {row[0].strip("`") for row in rows[1:]}
    assert named == {
        get_args(table.model_fields["model"].annotation)[0] for table in observer_tables()
    }
    full = pages.table_with(pages.read("docs/guarantees.md"), "threat model", "noise known")
    assert named == {row[0].strip("`") for row in full[1:]}


def test_changelog_has_the_version_of_the_package() -> None:
    import noisedesign

    text = pages.read("CHANGELOG.md")
    versions = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d{2}-\d{2}$", text, re.MULTILINE)
    released, coming = (tuple(map(int, v.split(".")[:3])) for v in (versions[0], RELEASE))
    assert released < coming if ".dev" in RELEASE else released == coming
    assert noisedesign.__version__.startswith(RELEASE)
