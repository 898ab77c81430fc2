"""Every page keeps its word: its blocks run in order and print what it says, its links lead
somewhere, and what it names exists.

Trainers that are not installed are played by stand-ins, which take only the arguments the real
ones take.
"""

from __future__ import annotations

import calendar
import re
import shlex
import sys
import types
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
import pytest

from noisedesign import cli
from tests.support import ROOT, pages

APART = {
    "docs/guides/jax.md",
    "docs/guides/ledger.md",
    "docs/guides/noise-in-integers.md",
    "docs/guides/seeds-without-a-dealer.md",
    "docs/guides/trainers.md",
}
"""Pages whose Python takes a second node, a trainer or another look: ``test_noise_pages`` and
``tests/adapters`` run it."""


def runs(page: Path) -> bool:
    name = page.relative_to(ROOT).as_posix()
    languages = {block.language for block in pages.blocks(pages.read(page))}
    return name not in APART and bool(languages & {"python", "pycon", "console"})


BESIDE = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "problems/README.md")
"""Pages that are read only."""

SECONDS = {
    *("compare-backends", "large-problems", "last-model", "noise-in-my-own-loop"),
    *("random-participation", "runs-without-an-end", "shell", "sweeps", "tutorial"),
    "which-design",
}
"""Pages that take more than a second; the one without an end takes fifteen."""

PLAYED = [page for page in pages.PAGES if runs(page)]


# --- stand-ins ------------------------------------------------------------------------------


class Privatizer(NamedTuple):
    init: Callable[[Any], int]
    update: Callable[..., tuple[np.ndarray, int]]


def stand_in_jax_privacy() -> dict[str, Any]:
    """What is called of JAX and JAX Privacy, with the signatures of the real ones."""

    def matrix_factorization_privatizer(
        noising_matrix: Any, *, stddev: float, prng_key: Any = None, dtype: Any = None
    ) -> Privatizer:
        """It draws an identity matrix, and repeats its last row as the real one does."""
        assert isinstance(noising_matrix, np.ndarray)
        assert prng_key is not None

        def update(sums: np.ndarray, state: int, params: Any = None) -> tuple[np.ndarray, int]:
            return sums + stddev * noising_matrix[min(state, len(noising_matrix) - 1)], state + 1

        return Privatizer(lambda model: 0, update)

    def wrap_key_data(bits: np.ndarray) -> Any:
        assert (bits.dtype, bits.shape) == (np.uint32, (2,))
        return types.SimpleNamespace(dtype="key", shape=())

    noise_addition = types.SimpleNamespace(
        matrix_factorization_privatizer=matrix_factorization_privatizer
    )
    experimental = types.SimpleNamespace(io_callback=None)
    jax = types.SimpleNamespace(
        random=types.SimpleNamespace(wrap_key_data=wrap_key_data),
        experimental=experimental,
        dtypes=types.SimpleNamespace(issubdtype=lambda a, b: a == b, prng_key="key"),
        numpy=np,
        core=types.SimpleNamespace(Tracer=types.NoneType),
    )
    return {
        "jax": jax,
        "jax.experimental": experimental,
        "jax_privacy": types.SimpleNamespace(noise_addition=noise_addition),
        "jax_privacy.noise_addition": noise_addition,
    }


class StandInNoiseGenerator:
    """WhisperDSGD's generator: noise of shape (rounds + 1, coordinates, nodes)."""

    def __init__(self) -> None:
        self.noise_params = np.eye(5)
        self._generate_dp_noise(n_clients=5, n_rounds=100, model_dim=7)

    def _generate_dp_noise(self, n_clients: int, n_rounds: int, model_dim: int) -> None:
        self.noise = np.random.default_rng(0).multivariate_normal(
            mean=np.zeros(n_clients), cov=self.noise_params, size=(n_rounds + 1, model_dim)
        )


def play(page: Path, folder: Path, patch: pytest.MonkeyPatch) -> pages.Played:
    for name, module in stand_in_jax_privacy().items():
        patch.setitem(sys.modules, name, module)
    aggregator = types.SimpleNamespace(
        weight_matrix=np.eye(5), dp_noise_generator=StandInNoiseGenerator()
    )
    return pages.play(page, folder, patch, {"aggregator": aggregator})


# --- following them -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow if page.stem in SECONDS else (), id=page.stem)
        for page in PLAYED
    ],
)
def test_what_a_page_shows_is_what_comes(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = play(page, tmp_path, monkeypatch)
    pages.assert_calls(played)
    if (further := FURTHER.get(page.relative_to(ROOT).as_posix())) is not None:
        further(played)


def check_python(played: pages.Played) -> None:
    """Like with like: (5, 1e-5), replace, 20 participations; R of [R^-1]_ii = 1 is for one of them,
    C of unit sensitivity for all."""
    from tests.support import oracles

    lines = [line.split() for line in played.printed.splitlines()]
    designs = [line for line in lines if line[-1] in ("True", "False")]
    assert len(designs) == 2
    for objective, bound, gap, feasible in designs:
        assert feasible == "True"
        assert float(bound) <= float(objective) <= float(bound) * (1 + 1e-6)
        assert float(gap) <= 1e-6
    stddevs = [float(line[-1]) for line in lines if line[:2] == ["noise", "stddev"]]
    mu = oracles.gaussian_mu(5.0, 1e-5)
    assert stddevs == pytest.approx([2 * 20**0.5 / mu, 2 / mu], rel=1e-6)
    for name, shape in (("florentine-space", 15), ("florentine-time", 320)):
        assert np.load(played.folder / f"{name}.npy").shape == (shape, shape)
    assert (played.folder / "florentine-time-noising.npy").exists()
    assert played.namespace["R"].shape == (15, 15)
    assert played.namespace["manifest"]["nodes"][0] == "Acciaiuoli"


def check_comparison(played: pages.Played) -> None:
    lines = (played.folder / "results.csv").read_text(encoding="utf-8").splitlines()
    column = lines[0].split(",").index("solved")
    assert [line.split(",")[column] for line in lines[1:]] == ["True"] * 4


def check_trainers(played: pages.Played) -> None:
    """Both at the mu their console blocks print: the privatizer's over 32 steps of sensitivity 1,
    the covariance over 100 rounds of sensitivity 2."""
    from noisedesign.base.checks import InputError

    privatizer = played.namespace["privatizer"]
    noise, state = [], privatizer.init(None)
    for _ in range(32):
        noisy, state = privatizer.update(np.zeros(32), state)
        noise.append(noisy)
    with pytest.raises(InputError, match="got update 33"):
        privatizer.update(np.zeros(32), state)
    patterns = np.arange(32).reshape(4, 8)
    squared = np.square(np.linalg.norm(np.linalg.inv(noise), axis=0))[patterns].sum(axis=0)
    assert squared.max() ** 0.5 == pytest.approx(0.647727, rel=1e-5)
    aggregator = played.namespace["aggregator"]
    covariance = aggregator.dp_noise_generator.noise_params
    precision = np.linalg.inv(covariance).diagonal()
    assert 2 * (100 * precision.max()) ** 0.5 == pytest.approx(1.12124, rel=1e-5)
    np.testing.assert_allclose(aggregator.weight_matrix.sum(axis=1), 1)
    assert aggregator.dp_noise_generator.noise.shape == (101, 7, 5)


FURTHER: dict[str, Callable[[pages.Played], None]] = {
    "docs/guides/python.md": check_python,
    "docs/guides/compare-backends.md": check_comparison,
    "docs/guides/other-trainers.md": check_trainers,
}
"""What is worth more than the words on a page."""


def test_these_pages_exist_and_run() -> None:
    names = {page.relative_to(ROOT).as_posix() for page in PLAYED}
    assert FURTHER.keys() <= names
    assert all((ROOT / name).exists() for name in APART)


PRINTED = "name  mine\n\nnode  mu\na      1\nb      2\nc      3\n"


def test_lines_are_left_out_only_where_the_page_says_so() -> None:
    for shown in (PRINTED, "name  mine\n...\nb      2\n...\n", "...\nc      3\n", ""):
        pages.assert_shown(shown, PRINTED, "here")
    for shown in (
        "name  mine\nnode  mu\na      1\nc      3\n",
        "node  mu\na      1\nb      2\nc      3\n",
        PRINTED.removesuffix("c      3\n"),
        "...\nb      4\n...\n",
    ):
        with pytest.raises(AssertionError, match="here"):
            pages.assert_shown(shown, PRINTED, "here")


# --- what they name -------------------------------------------------------------------------


def test_every_command_and_option_quoted_exists() -> None:
    seen = set()
    for page in pages.PAGES:
        for words in pages.shell_commands(pages.read(page)):
            command = cli.commands.get_command(click.Context(cli.commands), words[0])
            assert command is not None, words[0]
            seen.add(words[0])
            known = {"-h", "--help"}
            known |= {name for parameter in command.params for name in parameter.opts}
            given = {word for word in words[1:] if word.startswith("-")}
            assert given <= known, f"{page}: noisedesign {shlex.join(words)}"
            for option in command.params:
                if isinstance(option, click.Option) and option.is_flag:
                    continue
                for name in given & set(option.opts):
                    follows = words[words.index(name) + 1 :]
                    assert follows, f"{page}: {name} needs a value"
    assert seen == set(cli.commands.list_commands(click.Context(cli.commands))), (
        "a command the pages do not show"
    )


def test_every_make_target_quoted_exists() -> None:
    makefile = pages.read("Makefile")
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    for text in map(pages.read, [*pages.PAGES, "CHANGELOG.md"]):
        lines = re.findall(r"^make ([\w-]+)\s*(?:#.*)?$", text, re.MULTILINE)
        assert {*lines, *re.findall(r"`make ([\w-]+)", text)} <= targets


def test_links_lead_somewhere() -> None:
    followed = 0
    for page in [*pages.PAGES, *(ROOT / name for name in BESIDE)]:
        for target in re.findall(r"\]\(([^)\s]+)\)", pages.read(page)):
            if target.startswith("#"):
                assert target[1:] in pages.anchors_of(page), f"{page}: {target}"
            elif not target.startswith("https://"):
                file, _, anchor = target.partition("#")
                assert (page.parent / file).exists(), f"{page}: {target}"
                assert not anchor or anchor in pages.anchors_of(page.parent / file), (
                    f"{page}: {target}"
                )
                followed += 1
    assert followed >= 60


def test_every_picture_is_on_a_page_and_small() -> None:
    shown = {
        (page.parent / picture).resolve()
        for page in pages.PAGES
        for picture in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", pages.read(page))
    }
    assert shown >= set((ROOT / "docs" / "pictures").iterdir())
    assert all(picture.stat().st_size < 400_000 for picture in shown)


def test_words_for_a_picture_name_its_epsilon() -> None:
    named = re.compile(r"epsilon (\d[\d.]*\d|\d)")
    compared = 0
    for page in pages.PAGES:
        for words, picture in re.findall(r"!\[([^\]]+)\]\(([^)]+\.svg)\)", pages.read(page)):
            drawn = " ".join(re.findall("<text[^>]*>([^<]*)", pages.read(page.parent / picture)))
            told, shown = set(named.findall(words)), set(named.findall(drawn))
            assert told <= shown or not shown, (page.name, words, shown)
            compared += bool(told and shown)
    assert compared >= 2


CITED = re.compile(
    r"((?:[A-Z][\w-]+(?:, and|,| and) )*[A-Z][\w-]+)(?:,? et al\.| and others)?(?:'s)?,? \(?"
    r"((?:19|20)\d\d)\b(?!-)"
)
MONTHS = set(calendar.month_name)


def plain(text: str) -> str:
    """Without the marks on letters."""
    return "".join(c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c))


def test_every_work_that_is_cited_by_its_year_is_among_the_sources() -> None:
    """All its authors that are named, in pages, code and problems; data sets have a page of their
    own. arXiv's numbers are there, too."""
    listed = plain(pages.read("docs/sources.md"))
    entries = re.split(r"^- |; |, and (?=[A-Z])", listed, flags=re.MULTILINE)
    entries += pages.read("docs/guides/data.md").split("\n")
    citing = [p for p in pages.PAGES if p.name not in ("sources.md", "changelog.md")]
    citing += [p for r in ("noisedesign", "lab/noisedesign_lab") for p in (ROOT / r).rglob("*.py")]
    citing += (ROOT / "problems").rglob("*.toml")
    found = 0
    for path in citing:
        text = plain(re.sub(r"\s*\n\s*#?\s*", " ", pages.read(path)))
        for written, year in CITED.findall(text):
            names = [n for n in re.split(r", and |, | and ", written) if not n.isupper()]
            if names and names[-1] not in MONTHS:
                assert any(year in one and all(n in one for n in names) for one in entries), (
                    f"{path.relative_to(ROOT)}: {written} {year}"
                )
                found += 1
        for number in re.findall(r"(?i)arxiv[ :./a-z]*(\d{4}\.\d{5})", text):
            assert number in listed, f"{path.relative_to(ROOT)}: arXiv {number}"
    assert found >= 180


def test_pages_speak_of_no_place_on_this_machine() -> None:
    for page in pages.PAGES:
        assert not re.search(r"/(work|tmp|home)/|\.\./shared", pages.read(page)), page
