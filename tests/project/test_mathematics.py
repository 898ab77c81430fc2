"""The theorems of ``docs/mathematics``: every page keeps to its symbols and its size, every theorem
has its parts and names code and tests that exist, and what is proved on paper holds in numbers.
"""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Iterator
from importlib import import_module

import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.privacy.runs import Responses
from tests.support import ROOT, pages

PAGES = sorted((ROOT / "docs" / "mathematics").glob("*.md"))
MOST = 40_000  # bytes of all pages: one can read them in an evening
THEOREMS = "ABCDEFGHIJKL"
LETTERS = {*string.ascii_letters, "varphi", "varepsilon", "varkappa", "varsigma", "vartheta"} | {
    *("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"),
    *("lambda", "mu", "nu", "xi", "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi"),
    *("omega", "varrho", "varpi", "Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma"),
    *("Upsilon", "Phi", "Psi", "Omega", "ell", "hbar", "imath", "jmath", "wp", "Re", "Im"),
}
UPRIGHT = re.compile(r"\\(?:mathrm|text|operatorname)(?![A-Za-z])\s*(?:\{[^{}]*\}|[A-Za-z])")
SYMBOL = re.compile(
    r"(\\(?:bar|mathcal|mathbb|tilde|hat))\s*\{?\s*(\\?[A-Za-z]+?)(?![a-z])\s*\}?"
    r"|\\([A-Za-z]+)|([A-Za-z])"
)


def formulas_of(text: str) -> Iterator[str]:
    """What is between dollars, and in blocks of formulas; code is left out."""
    blocks = re.compile(r"```math\n(.*?)```", re.DOTALL)
    yield from blocks.findall(text)
    inline = re.sub(r"`[^`$][^`]*`", "", blocks.sub("", text))
    yield from re.findall(r"\$`?([^$]+?)`?\$", inline)


def symbols_of(formula: str) -> Iterator[str]:
    """Every letter, with its bar or its face; names of functions stand upright."""
    for accent, bare, command, letter in SYMBOL.findall(UPRIGHT.sub(" ", formula)):
        if accent:
            yield f"{accent} {bare}"
        elif command in LETTERS:
            yield f"\\{command}"
        elif letter:
            yield letter


def table() -> dict[str, int]:
    """Symbols of the one table, and how many of its rows have each."""
    text = pages.read("docs/mathematics/index.md").split("## Symbols")[1]
    found: dict[str, int] = {}
    for row in re.findall(r"^\| (\$.*?) \| .* \|$", text, re.MULTILINE):
        for symbol in {s for formula in formulas_of(row) for s in symbols_of(formula)}:
            found[symbol] = found.get(symbol, 0) + 1
    return found


def test_symbols_are_found() -> None:
    seen = set(
        symbols_of(r"\bar X_i \preceq \mathrm{tr}(\mathcal S^\top \varphi) \mathrm dG \frac")
    )
    assert seen == {r"\bar X", "i", r"\mathcal S", r"\varphi", "G"}


def test_every_symbol_has_one_row() -> None:
    found = table()
    assert len(found) >= 100
    assert {symbol for symbol, rows in found.items() if rows > 1} == set()


def test_pages_use_symbols_of_the_table_and_no_others() -> None:
    known, used = set(table()), set()
    for page in PAGES:
        found = {s for formula in formulas_of(pages.read(page)) for s in symbols_of(formula)}
        assert found <= known, f"{page.name}: {sorted(found - known)}"
        if page.name != "index.md":
            used |= found
    assert known <= used, sorted(known - used)


OWN = {
    "views": r"\rho r \theta \xi \bar\xi a \gamma \Gamma \Theta F Q \Upsilon \bar{F} \Xi \Lambda "
    r"\bar\Lambda \varkappa \Pi \Psi",
    "random": r"G \mathcal{E} \mathcal{R} \vartheta \bar\vartheta \Omega \psi \chi \bar{P}",
    "integers": r"Y \varrho \bar{z}",
    "bound": r"M h u",
    "bound program": r"f",
    "runs": r"m \Phi",
}
"""Letters of a single page, or two: elsewhere they would mean something else."""


def test_letters_of_one_page_have_no_second_meaning_on_another() -> None:
    for page in PAGES:
        found = {s for formula in formulas_of(pages.read(page)) for s in symbols_of(formula)}
        for home, letters in OWN.items():
            if page.stem not in {*home.split(), "index"}:
                assert not found & set(symbols_of(letters)), f"{page.name}: letters of {home}"


def test_all_of_it_is_read_in_an_evening() -> None:
    assert sum(len(page.read_bytes()) for page in PAGES) <= MOST
    listed = re.findall(r"^(\w+)$", pages.read("docs/mathematics/index.md"), re.MULTILINE)
    assert {*listed, "index"} == {page.stem for page in PAGES}


def page_of(name: str) -> str:
    return pages.read(f"docs/mathematics/{name}.md")


def theorems() -> dict[str, str]:
    found = {}
    for page in PAGES:
        for part in re.split(r"^## ", pages.read(page), flags=re.MULTILINE)[1:]:
            if part[1:3] == ". ":
                found[part[0]] = part
    return found


@pytest.mark.parametrize("letter", THEOREMS)
def test_a_theorem_has_all_its_parts(letter: str) -> None:
    part = theorems()[letter]
    order = [part.find(f"**{name}.**") for name in ("Hypotheses", "Statement", "Proof")]
    assert -1 < order[0] < order[1] < order[2]
    assert "∎" in part[order[2] :]
    for name in ("Used by", "Tests"):
        assert re.search(rf"^- \*{name}\* `", part, re.MULTILINE), name
    assert re.search(r"\*(New|Known)\*", part)
    # A work that is cited as the source of what is known has a year.
    known = re.findall(r"\*Known\*(.*?)(?=\*New\*|\n- |\Z)", part, re.DOTALL)
    assert all(re.search(r"(19|20)\d\d|conditioning|case of", one) for one in known)


def test_twelve_theorems() -> None:
    assert "".join(sorted(theorems())) == THEOREMS


def test_code_that_is_named_exists() -> None:
    seen = 0
    for page in PAGES:
        for name in re.findall(r"`([a-z]\w*(?:\.\w+)+)`", pages.read(page)):
            if name.startswith("math."):
                continue
            module, _, attribute = f"noisedesign.{name}".rpartition(".")
            assert hasattr(import_module(module), attribute), f"{page.name}: {name}"
            seen += 1
    assert seen >= 30


def test_structures_have_tests_named_as_their_modules() -> None:
    modules = re.findall(r"`(\w+(?:\.\w+)+)\.\w+`", page_of("structures"))
    assert len(modules) >= 8
    for module in modules:
        *rooms, name = module.split(".")
        assert (ROOT / "tests" / "/".join(rooms) / f"test_{name}.py").exists(), module


def test_tests_that_are_named_exist() -> None:
    seen = 0
    for page in PAGES:
        for file, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", pages.read(page)):
            tree = ast.parse(pages.read(file))
            assert name in {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}, name
            seen += 1
    assert seen >= 18


def test_what_a_machine_has_checked_is_there() -> None:
    """Once the proofs are part of the checkout."""
    proofs = "".join(map(pages.read, sorted((ROOT / "proofs").glob("*.v"))))
    named = [
        name
        for page in PAGES
        for line in re.findall(r"\*Checked by machine\*.*", pages.read(page))
        for name in re.findall(r"`(\w+)`", line)
    ]
    assert len(named) >= 5
    for name in named if proofs else ():
        assert re.search(rf"^(Theorem|Lemma|Corollary) {name}\b", proofs, re.MULTILINE), name


def test_confidences_are_those_of_the_code() -> None:
    from noisedesign.families.amplified import program
    from noisedesign.families.polynomial import bound
    from noisedesign.privacy.amplification import account
    from noisedesign.tasks.simulation import dynamics

    stated = re.compile(r"^\| (.*) \| (\$1 - 10\^\{-6\}\$|\.9999) \|", re.MULTILINE)
    rows = stated.findall(page_of("statistics"))
    assert len(rows) == 4
    assert account.CONFIDENCE == bound.CONFIDENCE == 1 - 1e-6
    assert pytest.approx(1e-6) == 2 * bound.FAILURE
    assert pytest.approx(1e-6) == (1 - program.SURE) * program.TRIES
    assert f"{dynamics.CONFIDENCE:.4f}".lstrip("0") == rows[-1][1]


# --- what code says of these pages -----------------------------------------------------------

REFERENCE = re.compile(r'(?:docs/)([\w/-]+\.md)(?:,\s+(?:"([^"]+)"|(theorem|lemma)\s+(\w+)))?')


def test_references_of_code_lead_to_a_page_and_to_what_they_name() -> None:
    """A quoted name is a heading, or what a paragraph or an item begins with."""
    followed = 0
    for path in sorted(p for room in ("noisedesign", "lab") for p in (ROOT / room).rglob("*.py")):
        text = re.sub(r"\n\s*(?:# )?", " ", pages.read(path))
        for page, named, kind, number in REFERENCE.findall(text):
            place = f"{path.relative_to(ROOT)}: {page} {named or number}"
            assert (ROOT / "docs" / page).exists(), place
            there = " ".join(pages.read(f"docs/{page}").split())
            if named:
                assert re.search(rf"(#+ |\*){re.escape(named)}", there), place
            elif number:
                assert re.search(rf"## {number}\. |{kind} {number}\b", there, re.IGNORECASE), place
            followed += 1
    assert followed >= 60


# --- what is proved, in numbers --------------------------------------------------------------


def definite(rng: np.random.Generator, size: int) -> np.ndarray:
    root = rng.normal(size=(size, size))
    return root @ root.T + 0.1 * np.eye(size)


@pytest.mark.parametrize("seed", range(20))
def test_three_lines_bound_every_noise(seed: int) -> None:
    """Theorem A with overlapping patterns and both limits: multipliers and Z are drawn, budgets and
    limits are those of the X drawn, by the sum of absolute values."""
    rng = np.random.default_rng(seed)
    size, rank = 6, 4
    x, h = definite(rng, size), definite(rng, size)
    patterns = [[0, 2, 4], [1, 3, 5], [0, 3], [5]]
    variance = np.linalg.inv(x).diagonal()
    w, u = rng.random(size), 0.01 * rng.random(size)
    blocks = np.zeros((size, size))
    price = 0.0
    for pattern in patterns:
        root = rng.normal(size=(len(pattern), rank))
        block = root @ root.T
        blocks[np.ix_(pattern, pattern)] += block
        price += block.diagonal().max() * np.abs(x[np.ix_(pattern, pattern)]).sum()
    factor, lower = np.linalg.cholesky(h + np.diag(w - u)).T, np.linalg.cholesky(blocks)
    inner = factor @ lower
    left, _, right = np.linalg.svd(inner)
    nearly = left @ right + 0.1 * rng.normal(size=(size, size))
    z = nearly / np.linalg.norm(nearly, 2)
    bound = np.vdot(inner, z) ** 2 / price - (w - u) @ variance
    assert np.vdot(inner, z) > 0
    assert bound <= np.trace(h @ np.linalg.inv(x)) * (1 + 1e-9)


def least_errors(root: np.ndarray, patterns: list[list[int]]) -> tuple[float, float]:
    """The optimum under the elliptope's dual, sum y <= 1 with Diag(y) >= X_pi, and that of the X
    that are diagonal on patterns: by a conic solver, without the library."""
    cp = pytest.importorskip("cvxpy")
    size, optima = len(root), []
    for restricted in (False, True):
        x, cover = cp.Variable((size, size), symmetric=True), cp.Variable((size, size), PSD=True)
        limits = [cp.bmat([[cover, root], [root.T, x]]) >> 0]
        for pattern in patterns:
            y = cp.Variable(len(pattern))
            block = x[pattern][:, pattern]
            limits += [cp.sum(y) <= 1, cp.diag(y) - block >> 0]
            limits += [x[i, j] == 0 for i in pattern for j in pattern if i < j and restricted]
        problem = cp.Problem(cp.Minimize(cp.trace(cover)), limits)
        optima.append(float(problem.solve(solver="CLARABEL")))
    return optima[0], optima[1]


def test_orthogonality_costs_nothing() -> None:
    """Theorem B: on disjoint patterns both optima are the same, and that of the library; where
    patterns overlap they are not."""
    root = np.random.default_rng(3).normal(size=(6, 6))
    free, restricted = least_errors(root, [[0, 2, 4], [1, 3, 5]])
    assert free == pytest.approx(restricted, rel=1e-6)
    scheme = nd.participation.FixedEpoch(epochs=3, separation=2)
    problem = nd.TimeProblem.from_gram(gram=root.T @ root, participation=scheme)
    assert nd.solve(problem).certificate.lower_bound == pytest.approx(free, rel=1e-5)
    free, restricted = least_errors(root, [[0, 2, 4], [1, 3, 5], [0, 3]])
    assert free < restricted * (1 - 1e-4)


@pytest.mark.parametrize("theta", [0.3, 1.0])
def test_clipped_gradients_answer_as_lemma_2_says(theta: float) -> None:
    """Jacobians of clipped gradients, (I - e e^T) times a share of a Hessian below theta: no answer
    leaves the ball of theta / sqrt 2, and some come near its rim."""
    rng = np.random.default_rng(0)
    most = 0.0
    for _ in range(5_000):
        d, e = rng.normal(size=(2, 2))
        axes = np.linalg.qr(rng.normal(size=(2, 2)))[0]
        hessian = axes @ np.diag(theta * rng.choice([0, 1, rng.random()], size=2)) @ axes.T
        e /= np.linalg.norm(e)
        changed = rng.random() ** 0.1 * (hessian @ d - (e @ hessian @ d) * e)
        most = max(most, np.linalg.norm(theta / 2 * d - changed) / np.linalg.norm(d))
    assert 0.69 * theta <= most <= theta / np.sqrt(2) * (1 + 1e-9)


@pytest.mark.parametrize(("records", "stretched"), [(4, 1.5), (100, 5.5)])
def test_smoothness_of_the_sum_is_not_enough_where_records_are_clipped(
    records: int, stretched: float
) -> None:
    """Losses x_k^2 / 2 + <b_k, x>, one a record: their sum has smoothness 1, and still a step along
    their clipped gradients stretches; the sum of theirs, that of lemma 2, bounds it."""
    along = np.ones(records) / np.sqrt(records)
    turned = np.eye(records) + along
    b = turned / np.linalg.norm(turned, axis=1, keepdims=True)

    def step(x: np.ndarray) -> np.ndarray:
        gradients = b + np.diag(x)
        norms = np.linalg.norm(gradients, axis=1, keepdims=True)
        return x - (gradients / np.maximum(norms, 1)).sum(axis=0)

    d = 1e-6 * along
    moved = (step(d) - step(0 * d)) / 1e-6
    assert np.linalg.norm(moved) == pytest.approx(stretched, rel=1e-3)
    for theta, held in ((1.0, False), (float(records), True)):
        off = np.linalg.norm(moved - (1 - theta / 2) * along)
        assert bool(off <= theta / np.sqrt(2)) is held
    told_of = " ".join(pages.read("docs/runs.md").split())
    assert re.search(rf"{records} records (of [^.]*)?by {stretched}\b", told_of)
    one = Responses(kind="convex", losses="general", clipping="record")
    assert one.rho + one.radius < stretched  # what a sum of 1 allows
    with pytest.raises(InputError, match="smoothness"):
        Responses(kind="convex", smoothness=float(records))


# --- words for truth -------------------------------------------------------------------------

WORDS = {"exact", "certified", "rigorous", "proved", "statistical", "bound", "claimed"} | {
    *("verified", "guaranteed", "estimate")
}
OTHERWISE = {
    r"\bproved lower bound|\bproved facts|\blower bound\*? is proved": "certified",
    r"\bproved by (the stored|uniform) multipliers": "certified",
    r"\b(epsilon|ε)`?[^.|:]{0,25} (is|are) (\*\*)?proved|\bproves? (epsilon|ε)": "an upper bound",
    r"\b(almost|nearly|virtually) (exact|certified|proved|rigorous)\b": "the error, or how near",
    r"\b(provably|rigorously|statistically (proved|certified)|proved estimates?)\b": "one word",
    r"\bcertified (estimates?|with every rounding)": "statistical, or rigorous",
    r"\brigorous (estimates?|confidence)": "statistical",
    r"\bproved by fresh|\bfresh ones prove": "judged: statistical",
    r"\bcertif(y|ies|ied),? with every rounding": "proved",
    r"\bBudgets are kept exactly": "without a tolerance",
    r"\b(error|objective) and( the)? bound are estimates": "statistical",
    r"\bguaranteed (optimal|bound|gap)|\bguarantees? optimality": "certified",
}
"""Ways to use these words that their definitions exclude, and what is meant."""


def told() -> Iterator[tuple[str, str]]:
    """Code with its strings, and pages, each as one line; of titles of works nothing is asked."""
    rooms = [ROOT / "noisedesign", ROOT / "lab" / "noisedesign_lab"]
    paths = [path for room in rooms for path in room.rglob("*.py")]
    paths += [*pages.PAGES, ROOT / "problems" / "README.md"]
    for path in paths:
        if path.name != "sources.md":
            text = re.sub(r'"?\s*\n\s*(?:# )?f?"?', " ", pages.read(path))
            yield path.relative_to(ROOT).as_posix(), " ".join(text.split())


def test_every_word_for_truth_is_defined_once() -> None:
    text = pages.read("docs/reference/conventions.md")
    rows = re.findall(r"^\| \*(\w+)\*", text, re.MULTILINE)
    assert len(rows) == len(set(rows))
    assert set(rows) >= WORDS
    for path, page in told():
        if path.startswith("docs/") and path != "docs/reference/conventions.md":
            assert not re.search(rf"^\| \*({'|'.join(WORDS)})\* \|", page), path


def test_every_status_is_said_in_these_words() -> None:
    from noisedesign.design.solve import Solution

    said = pages.read("docs/reference/conventions.md").split("## Words for truth")[1]
    doc = str(Solution.__doc__)
    for status in ("optimal", "statistical", "inaccurate", "local-optimum", "best-found"):
        assert f'"{status}"' in doc
        assert f"`{status}`" in said.split("\n## ")[0]
    for status in ("optimal", "inaccurate", "statistical"):
        assert re.search(rf'"{status}" \(certified', " ".join(doc.split()))


@pytest.mark.parametrize(
    "wrong",
    [
        "a proved lower bound",
        "`epsilon` is **proved**",
        "which says what proves epsilon",
        "nearly exact",
        "what multipliers certify, with every rounding accounted for",
        "what fresh ones prove",
        "a rigorous estimate",
    ],
)
def test_words_that_say_too_much_are_found(wrong: str) -> None:
    assert any(re.search(pattern, wrong) for pattern in OTHERWISE)


def test_words_for_truth_mean_what_they_are_defined_to() -> None:
    seen = 0
    for path, text in told():
        seen += sum(map(text.count, WORDS))
        for pattern, meant in OTHERWISE.items():
            found = re.search(pattern, text)
            assert not found, f"{path}: {text[found.start() - 40 : found.end() + 40]}: say {meant}"
    assert seen >= 1000
