"""Additions of other distributions by entry points, looked up when a name is not ours.

An addition that fails to load, or whose name is taken twice, is an error only for who asks for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import EntryPoint, distributions
from typing import Any, NamedTuple

from noisedesign.base.atomic import StorageError
from noisedesign.base.checks import InputError, describe


class Plugin(NamedTuple):
    """The object that an entry point names, and its distribution."""

    value: Any
    distribution: str


@dataclass(frozen=True)
class Group:
    """The entry points of one group; ``field`` and ``what`` are its words in errors."""

    name: str
    field: str
    what: str

    def names(self, own: Iterable[str]) -> tuple[str, ...]:
        """The names that are added to ``own``, in alphabetical order."""
        return tuple(sorted({entry.name for entry, _ in self._entries()} - set(own)))

    def load(self, name: str) -> Plugin:
        """Import the one addition of that name, and name its distribution; or InputError."""
        found = {(entry, by) for entry, by in self._entries() if entry.name == name}
        if len(found) != 1:
            named = " and ".join(sorted(f"{by} ({entry.value})" for entry, by in found))
            remedy = "Uninstall all of them but one." if found else ""
            expected = f"{self.what} of one distribution"
            got = f"{describe(name)} of {named or 'none'}"
            raise InputError(self.field, expected=expected, got=got, remedy=remedy)
        ((entry, by),) = found
        with self.blames(by):
            return Plugin(entry.load(), by)

    @contextmanager
    def blames(self, distribution: str) -> Iterator[None]:
        """Whatever goes wrong within is told as a mistake of that distribution."""
        try:
            yield
        except (InputError, StorageError, MemoryError):
            raise
        except (Exception, SystemExit) as error:
            raise self.refusal(distribution, f"{type(error).__name__}: {error}") from error

    def refusal(self, distribution: str, got: str) -> InputError:
        """The error for what a distribution does wrong."""
        expected = f"{self.what} that works, of the distribution {distribution}"
        remedy = f"Update {distribution}, or uninstall it."
        return InputError(self.field, expected=expected, got=got, remedy=remedy)

    def _entries(self) -> Iterator[tuple[EntryPoint, str]]:
        """Entry points of every readable distribution; the first of one name hides others."""
        seen: set[str] = set()
        for distribution in distributions():
            try:
                name = distribution.metadata["Name"].lower().replace("_", "-").replace(".", "-")
                entries = tuple(distribution.entry_points)
            except Exception:  # metadata of no package of ours may be damaged in any way
                continue
            if name in seen:
                continue
            seen.add(name)
            yield from ((entry, name) for entry in entries if entry.group == self.name)
