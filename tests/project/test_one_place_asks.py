"""One place asks of which kind a problem or a scheme is, whose multipliers are whose, who solves.

Read off the source: what a module could ask is found whether or not a test reaches the line.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import noisedesign as nd
from noisedesign.families.family import family_at
from noisedesign.forms.registry import REGISTRY

PACKAGE = Path(nd.__file__).parent
FILES = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}

KINDS = {"SpaceProblem", "TimeProblem", "SpaceTimeProblem"}
SCHEMES = {
    "FixedEpoch",
    "MinSeparation",
    "Patterns",
    "BallsInBins",
    "RandomAllocation",
    "CyclicPoisson",
    "TruncatedPoisson",
    "BMinSepSampling",
}
ASK = {"isinstance", "issubclass"}

FAMILIES: dict[str, set[str]] = {}
for key, entry in REGISTRY.items():
    FAMILIES.setdefault(entry.module.split(".")[2], set()).update(family_at(*key).proof)
"""The folder of every family -> the arrays that its design files hold besides the noise."""
NAMES = {family_at(*key).name for key in REGISTRY}
RELAXED = {"unrestricted_weights", "unrestricted_blocks", "unrestricted_cap"}
"""What files of version 2 called those of the problem without its structure."""
MULTIPLIERS = RELAXED.union(*FAMILIES.values())


@cache
def trees() -> dict[str, ast.Module]:
    """Every file of the package, read once."""
    found = {file: ast.parse(path.read_text(encoding="utf-8")) for file, path in FILES.items()}
    assert len(found) > 200
    return found


@cache
def nodes(tree: ast.AST) -> list[ast.AST]:
    """All that is below a tree, which several tests go through."""
    return [*ast.walk(tree)]


def names_in(node: ast.AST) -> set[str]:
    """Of variables, attributes and what is written as text, as annotations may be."""
    found = set()
    for inner in ast.walk(node):
        match inner:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                found.add(name)
            case ast.Constant(value=str(name)):
                found.add(name)
    return found


def questions(tree: ast.AST, kinds: set[str] = KINDS) -> Iterator[int]:
    """Lines that ask which of the kinds a value is: by isinstance, by its type, by a pattern."""
    for node in nodes(tree):
        match node:
            case ast.Call(func=ast.Name(id=name), args=[_, types]) if name in ASK:
                if names_in(types) & kinds:
                    yield node.lineno
            case ast.Compare(left=left, comparators=others):
                asked = {name for side in (left, *others) for name in names_in(side)}
                if asked & kinds:
                    yield node.lineno
            case ast.MatchClass(cls=kind) if names_in(kind) & kinds:
                yield kind.lineno
            case ast.Dict(keys=keys):  # a table by type is a question as well
                if any(
                    isinstance(key, ast.Name | ast.Attribute) and names_in(key) & kinds
                    for key in keys
                ):
                    yield node.lineno


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in nodes(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def comparisons(tree: ast.AST, text: str) -> Iterator[int]:
    """Lines that compare with a text, alone or among others, or match it."""
    for node in nodes(tree):
        sides: list[ast.AST] = []
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            sides = [node.value]
        for side in sides:
            among = side.elts if isinstance(side, ast.Tuple | ast.List | ast.Set) else [side]
            if any(isinstance(one, ast.Constant) and one.value == text for one in among):
                yield getattr(node, "lineno", 0) or getattr(side, "lineno", 0)


def lines(found: dict[str, list[int]]) -> list[str]:
    """All of them as ``file:line``, which is what a failure shows."""
    return [f"{file}:{line}" for file, those in found.items() for line in those]


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("isinstance(p, SpaceProblem)", 1),
        ("isinstance(p.problem, nd.TimeProblem | SpaceTimeProblem)", 1),
        ("x = not isinstance(p, (A, problem.SpaceProblem))", 1),
        ("type(p) is TimeProblem", 1),
        ("type(p) in (A, TimeProblem)", 1),
        ("p.__class__.__name__ == 'TimeProblem'", 1),
        ("match p:\n    case SpaceProblem(mixing=w): pass", 1),
        ("how = {SpaceProblem: f}[type(p)]", 1),
        ("p = SpaceProblem(mixing=w)", 0),
        ("isinstance(p, Problem)", 0),
        ("def f(p: SpaceProblem) -> None: ...", 0),
        ("exported = {'SpaceProblem': 'program.problem'}", 0),
    ],
)
def test_questions_are_found(source: str, count: int) -> None:
    assert len(list(questions(ast.parse(source)))) == count


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("b.name == 'native'", 1),
        ("'native' != b", 1),
        ("b in ('native', 'scs')", 1),
        ("match b:\n    case 'native': pass", 1),
        ("solve(p, backend='native')", 0),
    ],
)
def test_comparisons_are_found(source: str, count: int) -> None:
    assert len(list(comparisons(ast.parse(source), "native"))) == count


def test_the_kind_of_a_problem_is_asked_in_one_place() -> None:
    asked = {
        file: [*questions(tree)]
        for file, tree in trees().items()
        if any(kind in FILES[file].read_text(encoding="utf-8") for kind in KINDS)
    }
    assert not lines(asked)


def test_schemes_of_participation_answer_for_themselves() -> None:
    own = "system/participation/"
    others = {file: tree for file, tree in trees().items() if not file.startswith(own)}
    assert not lines({file: [*questions(tree, SCHEMES)] for file, tree in others.items()})


def test_multipliers_are_named_in_the_folder_of_their_family() -> None:
    named = {}
    for file, tree in trees().items():
        room, folder, *_ = *file.split("/"), ""
        own = FAMILIES.get(folder, set()) if room == "families" else set()
        named[file] = [line for line, text in texts(tree) if text in MULTIPLIERS - own]
    assert not lines(named)


def test_multipliers_are_those_of_all_families() -> None:
    assert {"dual_weights", "dual_blocks", "pattern_blocks", "observer_factors"} <= MULTIPLIERS
    assert set(FAMILIES) >= {"disjoint", "shared_seeds", "kronecker"}


def test_no_backend_is_told_by_its_name() -> None:
    assert not lines({file: [*comparisons(tree, "native")] for file, tree in trees().items()})


def test_no_family_is_told_by_its_name() -> None:
    told: dict[str, list[int]] = {}
    for file, tree in trees().items():
        for node in nodes(tree):
            if isinstance(node, ast.Compare) and {text for _, text in texts(node)} & NAMES:
                sides = (node.left, *node.comparators)
                if any(isinstance(side, ast.Attribute) and side.attr == "name" for side in sides):
                    told.setdefault(file, []).append(node.lineno)
    assert not lines(told)
