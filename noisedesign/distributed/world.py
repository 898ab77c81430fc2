"""Sums over all nodes, of parts that have some of them each: what :mod:`base.together` asks for."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from noisedesign.base.together import Alone
from noisedesign.distributed.journal import Journal
from noisedesign.distributed.mail import Array, Mail

DRAWN_AT_ONCE = 1 << 20  # random numbers of a piece of what others have, which is thrown away


class World(Alone):
    """The nodes as part ``mail.index`` sees them; ``ends``, (parts + 1,): where parts begin, and n.

    All parts ask for the same things in the same order, and are given the same bits: sums are made
    by part 0, in the order of parts. A part that asks for anything else ends the call."""

    def __init__(self, mail: Mail, ends: Array) -> None:
        self.mail, self.ends, self.index = mail, ends, mail.index
        self.parts = len(ends) - 1
        self.first, self.end = int(ends[self.index]), int(ends[self.index + 1])
        self._letters = 0
        self._journal: Journal | None = None
        self._at_work = False

    def keep(self, journal: Journal) -> None:
        """Keep what is found from now on, and begin with what the journals of all parts have."""
        journal.begin_at(-int(self.largest(np.array([-journal.entries]))))
        self._journal = journal

    def tag(self, about: str) -> tuple[int, str]:
        """The next letter's, which is the same for all parts."""
        self._letters += 1
        return self._letters, about

    def gathered(self, part: Any) -> list[Any]:
        """Gather what each part has, in their order: at part 0, and an empty list elsewhere."""
        tag = self.tag("sum")
        if self.index:
            self.mail.send(0, tag, part)
            return []
        return [part, *(self.mail.take(k, tag) for k in range(1, self.parts))]

    def told(self, what: Any) -> Any:
        """Tell all parts what part 0 has."""
        tag = self.tag("sum")
        if self.index:
            return self.mail.take(0, tag)
        for k in range(1, self.parts):
            self.mail.send(k, tag, what)
        return what

    def each(self, part: Array) -> list[Array]:
        """Return what each part has, an array of one axis, in their order, at every part."""
        every = self.gathered(part)
        cuts = np.cumsum([len(one) for one in every])[:-1] if every else None
        joined, cuts = self.told(np.concatenate(every) if every else None), self.told(cuts)
        return np.split(joined, cuts)

    def to_owners(self, sums: Array, cuts: Array) -> Array:
        """Sums of all parts over columns, each at the part that they belong to: ``cuts`` says where
        the columns of each begin, (parts + 1,)."""
        tag = self.tag("owners")
        for k in range(self.parts):
            if k != self.index and cuts[k + 1] > cuts[k]:
                self.mail.send(k, tag, sums[:, cuts[k] : cuts[k + 1]])
        own = sums[:, cuts[self.index] : cuts[self.index + 1]]
        found = np.zeros_like(own)
        for k in range(self.parts if own.shape[1] else 0):
            found += own if k == self.index else self.mail.take(k, tag)
        return found

    def count(self, rows: int) -> int:
        return int(self.ends[-1])

    def here(self, rows: int) -> range:
        return range(self.first, self.end)

    def total(self, part: Any) -> Any:
        every = [np.asarray(one) for one in self.gathered(np.asarray(part))]
        return self.told(sum(every[1:], start=every[0]) if every else None)

    def largest(self, rows: Array) -> float:
        every = self.gathered(np.float64(rows.max()))
        return float(self.told(np.float64(np.max(every)) if every else None))

    def least_squares(self, basis: Array, images: Array) -> Array:
        """Solve by the triangles of the parts' own QR factors, one below the other."""
        own = np.linalg.qr(np.column_stack([basis, images]), mode="r")
        every = self.gathered(own)
        found = None
        if every:
            stacked = np.concatenate(every)
            found = np.linalg.lstsq(stacked[:, :-1], stacked[:, -1], rcond=None)[0]
        return np.asarray(self.told(found))

    def drawn(self, draw: Callable[[tuple[int, int]], Array], rows: int, columns: int) -> Array:
        """Numbers of other parts are drawn as well, a piece at a time, and thrown away."""
        for skipped in _pieces(self.first, columns):
            draw(skipped)
        found = draw((self.end - self.first, columns))
        for skipped in _pieces(int(self.ends[-1]) - self.end, columns):
            draw(skipped)
        return found

    def kept(self, work: Callable[[], Any]) -> Any:
        if self._journal is None:
            return work()
        if self._at_work:
            raise RuntimeError("work that is kept is part of other work that is")
        known = self._journal.next()
        if known is None:
            self._at_work = True
            try:
                known = work()
            finally:
                self._at_work = False
            self._journal.add(known)
            give_back()
        return known


def give_back() -> None:
    """Return memory that was freed to the system, where the C library would keep it: a worker's
    limit counts it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def _pieces(rows: int, columns: int) -> list[tuple[int, int]]:
    at_once = max(DRAWN_AT_ONCE // columns, 1)
    return [(min(at_once, rows - first), columns) for first in range(0, rows, at_once)]
