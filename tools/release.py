"""``python tools/release.py``: what is left to do before this commit is released, as a table.

    python tools/release.py                # everything; builds, installs and tries what is uploaded
    python tools/release.py --quick        # what the files say, without building
    python tools/release.py --set 0.3.0    # write the number and today's date where they stand
    python tools/release.py --run          # run all tests of a release, and keep how they ended

Distributions are built in a clone of the commit, with the number set and tagged there: they are
what would be uploaded, also before the number is set here; once it is, they are left in ``dist``.
They are installed in an environment of their own by pip, with what they need from a package index.
The exit code is 1 while something is left.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSION = Path("noisedesign", "base", "version.py")
CHANGES, CITATION = Path("CHANGELOG.md"), Path("CITATION.cff")
PROJECT, LABORATORY = Path("pyproject.toml"), Path("lab", "pyproject.toml")
KEPT = Path("build", "release.json")
"""The file that keeps how tests ended, and at which commit."""

TESTS = ("test", "test-slow", "test-kernels", "test-trainers", "test-pythons", "mutants WHAT=--all")
"""Targets of make."""
REPOSITORY = r'^repository = "(.*)"$'
PLACEHOLDERS = r"\b(TODO|FIXME|XXX|TBD)\b"
NAMES = ("noisedesign", "noisedesign_lab", "noisedesign_runtime")
FIELDS = ("Author", "Summary", "License-Expression", "Requires-Python", "Project-URL")

Row = tuple[str, bool, str]
"""A thing to be done, whether it is, and a word about it."""


# --- what the files say ---------------------------------------------------------------------------


def released(root: Path) -> str:
    """The number as the sources have it, perhaps with ``.dev0``."""
    return _found(r'^RELEASE = "(.+)"$', root / VERSION)


def _found(pattern: str, file: Path) -> str:
    match = re.search(pattern, file.read_text(encoding="utf-8"), re.MULTILINE)
    return match[1] if match else ""


def in_files(root: Path) -> Iterator[Row]:
    """Rows about files of the repository."""
    said = released(root)
    number = said.partition(".dev")[0]
    yield "number", said == number, f"RELEASE is {said}"
    changes = (root / CHANGES).read_text(encoding="utf-8")
    date = _found(rf"^## \[{re.escape(number)}\] - (\d{{4}}-\d\d-\d\d)$", root / CHANGES)
    unreleased = "\n## [Unreleased]\n" in changes
    words = "has [Unreleased]" if unreleased else f"{number} of {date or 'no date'}"
    yield "changelog", bool(date) and not unreleased, words
    cited = _found(r"^version: (\S+)$", root / CITATION)
    when = _found(r'^date-released: "(\S+)"$', root / CITATION)
    yield "citation", (cited, when) == (number, date), f"{cited} of {when}"
    pinned = _found(r'"noisedesign==([\d.]+)\.\*"', root / LABORATORY)
    yield "laboratory", pinned == _series(number), f"takes noisedesign {pinned}.*"
    repository = _found(REPOSITORY, root / PROJECT)
    address = bool(re.fullmatch(r"https://[\w.-]+(/[\w.-]+)+", repository))
    yield "address", address, repository or "fill in `repository` in pyproject.toml"


def _series(number: str) -> str:
    return number.rpartition(".")[0]


def set_number(root: Path, number: str, *, date: str) -> None:
    """Write a number where it stands; of a release, not of what comes after, also its date."""
    plain = number.partition(".dev")[0]
    _write(root / VERSION, r'^RELEASE = ".+"$', f'RELEASE = "{number}"')
    _write(root / LABORATORY, r"noisedesign==[\d.]+\.\*", f"noisedesign=={_series(plain)}.*")
    if number != plain:
        if "\n## [Unreleased]\n" not in (root / CHANGES).read_text(encoding="utf-8"):
            _write(root / CHANGES, r"^(?=## \[)", "## [Unreleased]\n\n")
        return
    _write(root / CHANGES, r"^## \[Unreleased\]$", f"## [{number}] - {date}")
    _write(root / CITATION, r"^version: \S+$", f"version: {number}")
    address = _found(REPOSITORY, root / PROJECT)
    told = f'date-released: "{date}"\n'
    if address:
        told += f'repository-code: "{address}"\n'
    _write(root / CITATION, r"^date-released: .+\n(repository-code: .+\n)?", told)


def _write(file: Path, pattern: str, text: str) -> None:
    before = file.read_text(encoding="utf-8")
    file.write_text(re.sub(pattern, text, before, count=1, flags=re.MULTILINE), encoding="utf-8")


# --- what git and make say ------------------------------------------------------------------------


def in_repository(root: Path) -> Iterator[Row]:
    """Rows about the commit, and about tests that were run at it."""
    number = released(root).partition(".dev")[0]
    changed = _git(root, "status", "--porcelain").splitlines()
    yield (
        "tree",
        not changed,
        f"{len(changed)} files differ from the commit" if changed else "clean",
    )
    left = _git(
        root, "grep", "-lIwE", PLACEHOLDERS, "--", "*.md", "*.py", "*.toml", "*.cff", ".github"
    )
    found = [name for name in left.splitlines() if name != "tools/release.py"]
    yield "placeholders", not found, ", ".join(found) or "none"
    commit = _git(root, "rev-parse", "HEAD").strip()
    ended = json.loads((root / KEPT).read_text()) if (root / KEPT).is_file() else {}
    for target in TESTS:
        at, passed = ended.get(target, ("", False))
        words = "not run" if not at else f"{'passed' if passed else 'FAILED'} at {at[:12]}"
        yield f"make {target}", passed and at == commit, words
    tags = _git(root, "tag", "--points-at", "HEAD").split()
    yield "tag", f"v{number}" in tags, f"git tag -a v{number}, when all else is done"


def _git(root: Path, *arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False).stdout


def run_tests(root: Path) -> bool:
    """Run what has not passed at this commit, and keep how it ended."""
    kept = root / KEPT
    ended = json.loads(kept.read_text()) if kept.is_file() else {}
    commit = _git(root, "rev-parse", "HEAD").strip()
    if _git(root, "status", "--porcelain"):
        print("commit first: tests are kept as those of a commit", file=sys.stderr)
        return False
    for target in TESTS:
        if ended.get(target) != [commit, True]:
            done = subprocess.run(["make", *target.split()], cwd=root, check=False)
            ended[target] = [commit, done.returncode == 0]
            kept.parent.mkdir(exist_ok=True)
            kept.write_text(json.dumps(ended, indent=2))
    return all(passed for _, passed in ended.values())


# --- what would be uploaded -----------------------------------------------------------------------


def of_distributions(root: Path) -> Iterator[Row]:
    """Rows about what is built from the commit, and does where nothing else is installed."""
    number = released(root).partition(".dev")[0]
    with tempfile.TemporaryDirectory() as folder:
        clone, out = Path(folder, "clone"), Path(folder, "dist")
        try:
            _done("git", "clone", "--quiet", root, clone)
            if released(root) != number:
                set_number(clone, number, date=datetime.date.today().isoformat())
                who = ("-c", "user.name=release", "-c", "user.email=release@localhost")
                _done("git", *who, "commit", "--quiet", "-am", f"Version {number}", cwd=clone)
            _done("git", "tag", "--force", f"v{number}", cwd=clone)
            build = (sys.executable, "-m", "build", "--no-isolation", "--outdir", out)
            _done(*build, clone)
            for part in ("lab", "tools/runtime"):
                _done(*build, "--wheel", clone / part)
        except RuntimeError as error:
            yield "built", False, str(error)
            return
        built = sorted(path.name for path in out.iterdir())
        wanted = [f"{name}-{number}-py3-none-any.whl" for name in NAMES]
        right = built == sorted([*wanted, f"noisedesign-{number}.tar.gz"])
        yield "built", right, ", ".join(built)
        if released(root) == number:
            shutil.copytree(out, root / "dist", dirs_exist_ok=True)
        yield _tried("metadata", lambda: _metadata(out))
        yield _tried("installed", lambda: _installed(out, number, Path(folder)))
        yield _tried("docs", lambda: _docs(clone, Path(folder, "site")))


def _tried(name: str, check: Callable[[], str]) -> Row:
    try:
        return name, True, check()
    except RuntimeError as error:
        return name, False, str(error)


def _metadata(out: Path) -> str:
    """Refuse what an index would refuse, or that a reader misses."""
    from packaging.metadata import Metadata

    for wheel in sorted(out.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
            text = archive.read(name).decode("utf-8")
        try:
            told = Metadata.from_email(text)
        except ExceptionGroup as error:
            raise RuntimeError(f"{wheel.name}: {error.exceptions}") from error
        missing = [field for field in FIELDS if not re.search(rf"^{field}: .", text, re.MULTILINE)]
        if missing or not told.description:
            raise RuntimeError(f"{wheel.name} has no {', '.join(missing) or 'description'}")
    if importlib.util.find_spec("twine") is None:
        return "complete and valid (twine is not installed: its check was left out)"
    _done(sys.executable, "-m", "twine", "check", "--strict", *sorted(out.iterdir()))
    return "complete and valid, also for twine"


def _installed(out: Path, number: str, folder: Path) -> str:
    """Install the wheels in an environment of their own, and run them there."""
    venv = folder / "venv"
    _done(sys.executable, "-m", "venv", "--without-pip", venv)
    scripts = venv / ("Scripts" if os.name == "nt" else "bin")
    pip = (sys.executable, "-m", "pip", "--python", scripts / "python")
    names = ("noisedesign[pages]", "noisedesign-lab", "noisedesign-runtime")
    wanted = [f"{name}=={number}" for name in names]
    _done(*pip, "install", "--quiet", "--find-links", out, *wanted)
    _done(*pip, "check")
    said = _done(scripts / "noisedesign", "--version", cwd=folder).split()[-1]
    if said != number:
        raise RuntimeError(f"it says it is {said}")
    _done(scripts / "noisedesign", "demo", "-o", "out", "--runs", "200", cwd=folder)
    _done(scripts / "noisedesign", "train", "--help", cwd=folder)
    _done(scripts / "noisedesign-node", "--help", cwd=folder)
    return f"{number}, and its demo runs"


def _docs(clone: Path, site: Path) -> str:
    sphinx = ("-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", "-b", "html")
    _done(sys.executable, *sphinx, "docs", site, cwd=clone, PYTHONPATH=str(clone))
    return f"{len(list(site.rglob('*.html')))} pages, no warning"


def _done(*command: str | Path, cwd: Path = ROOT, **extra: str) -> str:
    """Return what a command prints; its last line is the error where it fails."""
    hidden = ("PYTHON", "GIT_")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(hidden)} | extra
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=kept,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or str(done.returncode)).splitlines()
        words = " ".join(str(word) for word in command[1:3])
        raise RuntimeError(f"{Path(command[0]).name} {words}: {said[-1]}")
    return done.stdout


# --- the table ------------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="What is left to do before a release.")
    parser.add_argument("--set", metavar="NUMBER", help="write this number where it stands")
    parser.add_argument("--run", action="store_true", help="run the tests of a release first")
    parser.add_argument("--quick", action="store_true", help="build nothing")
    chosen = parser.parse_args(arguments)
    if chosen.set:
        if not re.fullmatch(r"\d+\.\d+\.\d+(\.dev0)?", chosen.set):
            parser.error("a number is 0.3.0 or 0.4.0.dev0")
        set_number(ROOT, chosen.set, date=datetime.date.today().isoformat())
        return 0
    if chosen.run:
        run_tests(ROOT)
    left, total = 0, 0
    parts = (in_files, of_distributions, in_repository)
    for part in parts if not chosen.quick else (in_files, in_repository):
        for name, done, words in part(ROOT):
            left, total = left + (not done), total + 1
            print(f"{'done' if done else 'NOT DONE':<9} {name:<24} {words}", flush=True)
    print(f"\n{total - left} of {total} done." if left else "\nAll done: upload what is in dist.")
    return int(left > 0)


if __name__ == "__main__":
    sys.exit(main())
