"""A checkpoint that only grows: the results of a part, in the order of its work."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from noisedesign.base.atomic import write_bytes

SUFFIX = ".npz"


class Journal:
    """Numbered files in a folder, each the arrays of one result; they hold no pickle. A solve draws
    the same vectors every time, so that work which is done again has the same order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._next, self._known = 0, 0
        while self._path(self._known).exists():
            self._known += 1

    @property
    def entries(self) -> int:
        """Results that are there, without a gap."""
        return self._known

    def begin_at(self, known: int) -> None:
        """Other parts know no more than so many: what this one knows beyond them is found again."""
        for number in range(known, self._known):  # else some of it might outlive this solve
            self._path(number).unlink()
        self._next, self._known = 0, known

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:06d}{SUFFIX}"

    def next(self) -> Any:
        """The next result; None where it is not known yet, which :meth:`add` then tells."""
        if self._next >= self._known:
            return None
        path = self._path(self._next)
        try:
            with np.load(path, allow_pickle=False) as stored:
                arrays = [stored[name] for name in stored.files]
                many = bool(arrays.pop(0))
        except (OSError, ValueError, zipfile.BadZipFile, IndexError) as error:
            raise OSError(
                f"{path} is damaged ({error}); delete the folder to begin anew"
            ) from error
        self._next += 1
        return tuple(arrays) if many else arrays[0]

    def add(self, found: Any) -> None:
        """Write a result whole, or not at all."""
        many = isinstance(found, tuple)
        content = io.BytesIO()
        np.savez(content, np.array(many), *(found if many else (found,)))
        write_bytes(self._path(self._next), content.getvalue())
        self._next += 1
        self._known = max(self._known, self._next)
