"""Files of public data sets: in a folder of the user's, in the cache, or on a server."""

from __future__ import annotations

import hashlib
import os
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from noisedesign.base.checks import InputError
from noisedesign.base.extras import need

DATA_VARIABLE = "NOISEDESIGN_DATA"


def data_folder() -> Path | None:
    """The folder named by ``NOISEDESIGN_DATA``, or None where the variable is not set."""
    value = os.environ.get(DATA_VARIABLE)
    if not value:
        return None
    folder = Path(value)
    if not folder.is_dir():
        raise InputError(DATA_VARIABLE, expected="an existing folder", got=value)
    return folder


def unchanged(content: bytes) -> bytes:
    return content


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """A file of a public data set, which is never shipped and always checked."""

    field: str  # of errors
    name: str  # its path in the folder of NOISEDESIGN_DATA and in the cache
    sha256: str  # of its content, or of the canonical form of that
    url: str  # the official source; an archive where ``member`` is given
    member: str = ""
    canonical: Callable[[bytes], bytes] = unchanged  # the same for every accepted copy
    checksum_of: str = "its content"  # in words

    def local(self) -> Path | None:
        """The path of a copy on this machine, not yet checked, or None."""
        folders = [folder for folder in (data_folder(), _cache_folder()) if folder is not None]
        candidates = (folder / self.name for folder in folders)
        return next((path for path in candidates if path.is_file()), None)

    def read(self) -> bytes:
        """Its content, in canonical form, from a local copy or else from the official source."""
        path = self.local()
        if path is None:
            return self._download()
        return self._checked(path.read_bytes(), origin=str(path))

    def _checked(self, content: bytes, *, origin: str) -> bytes:
        content = self.canonical(content)
        digest = hashlib.sha256(content).hexdigest()
        if digest != self.sha256:
            expected = f"{origin} with {self._checksum}"
            remedy = f"The file has been altered. Restore it from {self.url}."
            raise InputError(self.field, expected=expected, got=digest, remedy=remedy)
        return content

    @property
    def _checksum(self) -> str:
        of = "" if self.canonical is unchanged else f" of {self.checksum_of}"
        return f"sha256{of} {self.sha256}"

    def _download(self) -> bytes:
        """Fetch the file, or the one wanted member of an archive, and keep it once checked."""
        need("pooch", field=self.field)
        import pooch

        wanted = self.member or Path(self.name).name
        origin = f"{self.url}: {self.member}" if self.member else self.url
        target = Path(pooch.os_cache("noisedesign")) / self.name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
                # The checksum of an archive may not be published; that of what is kept is ours.
                fetched = Path(pooch.retrieve(self.url, known_hash=None, path=scratch))
                content = _member(fetched, self.member) if self.member else fetched.read_bytes()
                canonical = self._checked(content, origin=origin)
                kept = Path(scratch) / f"checked-{target.name}"
                kept.write_bytes(content)
                kept.replace(target)
        except (OSError, EOFError, KeyError, tarfile.TarError, zipfile.BadZipFile) as error:
            where = "download the archive by hand and put its" if self.member else "download"
            raise InputError(
                self.field,
                expected=f"{wanted}, from a local copy or {self.url}",
                got=f"no copy, and the download failed ({type(error).__name__})",
                remedy=f"Set {DATA_VARIABLE} to a folder that holds {self.name}: {where} {wanted} "
                f"there. Its {self._checksum} is compared.",
            ) from error
        return canonical


def _cache_folder() -> Path | None:
    """The user's cache; None without pooch, which knows where it is and fills it."""
    if find_spec("pooch") is None:
        return None
    import pooch

    return Path(pooch.os_cache("noisedesign"))


def _member(archive: Path, name: str) -> bytes:
    """One member of an archive; no other is unpacked."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened:
            return opened.read(name)
    with tarfile.open(archive) as tar:
        stream = tar.extractfile(name)
        if stream is None:
            raise tarfile.ExtractError(f"{name} is not a regular file")
        return stream.read()
