"""The page of errata says of every row what it was read in, and which test shows it."""

from __future__ import annotations

import re

from tests.project.test_guides import names_of_tests
from tests.support import pages

TEXT = pages.read("docs/errata.md")
READ_IN = ("PDF", "HTML", "code", "ours", "transcription")


def rows() -> list[tuple[str, dict[str, str]]]:
    """Rows of tables with a column "read in", by their heads, with the section they stand in."""
    found = []
    for section in re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]:
        head: list[str] = []
        for line in section.splitlines():
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if not cells or set(cells[0]) == {"-"}:
                head = head if cells else []
            elif not head:
                head = cells
            elif "read in" in head:
                found.append((section.partition("\n")[0], dict(zip(head, cells, strict=True))))
    return found


def test_every_row_says_what_it_was_read_in() -> None:
    assert len(rows()) >= 20
    for section, row in rows():
        assert row["read in"] in READ_IN, row
        assert (row["read in"] == "transcription") == (section == "Questions"), row
        assert set(re.findall(r"`(test_\w+)`", row["test"])), row


def test_every_test_that_the_errata_name_is_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", TEXT))
    assert len(named) >= 15
    assert named <= names_of_tests()
