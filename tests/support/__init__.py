"""What tests share: oracles that know nothing of the library, cases, readers, the command line."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def holds_for(names: Iterable[str], check: Callable[[str], None]) -> None:
    """A check of every name, and not only up to the first that it fails for."""
    failed = []
    for name in names:
        try:
            check(name)
        except Exception as error:
            failed.append(f"{name}: {type(error).__name__}: {error}")
    if failed:
        pytest.fail("\n\n".join(failed), pytrace=False)
