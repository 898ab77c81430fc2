"""Letters among parts: boxes that they are put into, and an end to waiting for them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Array = NDArray[Any]  # of any kind of number

LONGEST_SILENCE = 600.0
"""Seconds that a part waits for another, unless told: more than any work between letters."""

ABANDONED = 60.0
"""Seconds after which a part ends whose client, which asks all the time, asked it nothing: more
leave a part longer on its worker where its client was killed and letters no longer arrive, fewer
end that of a slow client."""

Tag = tuple[int, str]  # the number of a letter among those of its part, and what it is about


class LostError(OSError):
    """Another part sent nothing, or was lost: the call ends; a checkpoint knows how far it was."""


class Box:
    """The letters that a part has not read yet; others put them there from threads of theirs."""

    def __init__(self) -> None:
        self._letters: dict[tuple[int, int], tuple[str, Any]] = {}
        self._there = threading.Condition()
        self._ended: str | None = None
        self._heard: float | None = None

    def heard(self) -> None:
        """The client is there; in one process, where this is never called, it always is."""
        self._heard = time.monotonic()

    def put(self, sender: int, tag: Tag, data: Any) -> None:
        number, about = tag
        with self._there:
            self._letters[sender, number] = (about, data)
            self._there.notify_all()

    def end(self, reason: str) -> None:
        """Whoever waits, or waits later, is told why nothing will come."""
        with self._there:
            self._ended = reason
            self._there.notify_all()

    def take(self, sender: int, tag: Tag, *, silence: float) -> Any:
        """The letter of a sender; LostError after so many seconds, or where the call was ended."""
        number, about = tag
        latest = time.monotonic() + silence
        with self._there:
            while True:
                now = time.monotonic()
                if self._heard is not None and now - self._heard > ABANDONED:
                    raise LostError(f"the client asked nothing for {ABANDONED:g} s")
                if (sender, number) in self._letters:
                    break
                left = latest - now
                if self._ended is not None:
                    raise LostError(self._ended)
                if left <= 0:
                    raise LostError(f"part {sender} sent nothing for {silence:g} s")
                self._there.wait(min(left, ABANDONED))
            found, data = self._letters.pop((sender, number))
        if found != about:
            raise LostError(f"part {sender} is about {found} where this one is about {about}")
        return data


class Mail:
    """The mail of one part: its own box, and how the boxes of others are reached."""

    def __init__(
        self,
        index: int,
        box: Box,
        put: Mapping[int, Callable[[int, Tag, Any], Any]],
        *,
        silence: float = LONGEST_SILENCE,
    ) -> None:
        self.index, self.silence = index, silence
        self._box, self._put = box, put
        self._under_way: list[Any] = []
        self.sent: Counter[str] = Counter()
        """Messages and bytes by what they are about: ``halo messages``, ``halo bytes``, ..."""

    def send(self, to: int, tag: Tag, data: Any) -> None:
        """Begin to send; an error of an earlier letter, whose receiver was lost, is told here."""
        self.sent[f"{tag[1]} messages"] += 1
        self.sent[f"{tag[1]} bytes"] += size_of(data)
        self._under_way = [each for each in self._under_way if not _arrived(each)]
        answer = self._put[to](self.index, tag, data)
        if answer is not None:
            self._under_way.append(answer)

    def take(self, sender: int, tag: Tag) -> Any:
        return self._box.take(sender, tag, silence=self.silence)


def _arrived(answer: Any) -> bool:
    """Whether a letter has arrived; its error where it never will."""
    if not answer.done():
        return False
    try:
        answer.result()
    except Exception as error:
        raise LostError(f"a letter did not arrive: {error}") from error
    return True


def size_of(data: Any) -> int:
    """Bytes of the arrays of a letter."""
    if isinstance(data, np.ndarray):
        return data.nbytes
    if sparse.issparse(data):
        rows: Any = data
        return int(rows.data.nbytes + rows.indices.nbytes + rows.indptr.nbytes)
    return 8
