"""What the reference says of a public name is complete, and it is about what is there.

Docstrings are read as the documentation reads them, by the Google style of Sphinx's napoleon.
"""

from __future__ import annotations

import dataclasses
import doctest
import inspect
import pydoc
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import pytest

import noisedesign
import noisedesign.noise
from tests.project.test_wrong_input import CALLS
from tests.support import holds_for
from tests.support.reference import adapters, given, reference

napoleon = pytest.importorskip("sphinx.ext.napoleon", reason="needs sphinx")

CONFIG = napoleon.Config(napoleon_use_param=True, napoleon_use_ivar=True)

REFERENCE = reference() | adapters()
WITHOUT_EXAMPLE = {
    *(f"noisedesign.adapters.decentralizepy.{name}" for name in ("NoisyTraining", "plan_at")),
    *(f"noisedesign.adapters.opacus.{name}" for name in ("Accountant", "DesignedOptimizer")),
    *(f"noisedesign.adapters.opacus.{name}" for name in ("RoundBatches", "RoundLoader")),
    *(f"noisedesign.adapters.huggingface.{name}" for name in ("DesignedTrainer", "Designed")),
    "noisedesign.adapters.lightning.DesignedNoise",
    "noisedesign.adapters.decentralizepy.DesignedSharing",
}
"""Of a trainer that no package index has; what ``Engine`` makes, whose example has them; and what
takes a model and a folder, of which a guide has a script."""

CLASSES: dict[str, Any] = {
    name: value for name, value in REFERENCE.items() if inspect.isclass(value)
}
RESULTS = {name for name, value in CLASSES.items() if not hasattr(value, "__post_init__")}

CHECKS = re.compile(r"raise \w|_checks\.")
"""What in the lines of a function raises errors of its own."""

KINDS = (property, cached_property, classmethod, staticmethod, FunctionType)
"""What a class has that the reference lists."""


class Said(NamedTuple):
    """What a docstring says: of each parameter, attribute and error, and of what is returned."""

    summary: str
    parameters: dict[str, str]
    attributes: dict[str, str]
    errors: dict[str, str]
    returned: bool


def said(doc: str) -> Said:
    text = str(napoleon.GoogleDocstring(inspect.cleandoc(doc), CONFIG))
    assert ":rtype:" not in text, "what is before a colon would be read as a type"
    fields = re.findall(r"^:(param|ivar|raises|returns?)\b ?(.*?):(?=\s|$)(.*)", text, re.M)
    of: dict[str, dict[str, str]] = {"param": {}, "ivar": {}, "raises": {}}
    for kind, name, words in fields:
        if kind in of:
            of[kind][name.replace("\\", "").lstrip("*")] = words.strip()
    paragraph = re.split(r"\n\s*\n", text.strip(), maxsplit=1)[0]
    returned = any(kind.startswith("return") for kind, _, _ in fields)
    return Said(paragraph, of["param"], of["ivar"], of["raises"], returned)


def members(of: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties that the package gives to a class, inherited ones too."""
    for name in dir(of):
        owner = next((c for c in of.__mro__ if name in vars(c)), None)
        if name.startswith("_") or owner is None or not owner.__module__.startswith("noisedesign"):
            continue
        value = vars(owner)[name]
        if isinstance(
            value, (property, cached_property, classmethod, staticmethod)
        ) or inspect.isfunction(value):
            yield name, value


FUNCTIONS: dict[str, Callable[..., Any]] = {}
PROPERTIES: dict[str, Any] = {}
for path, public in REFERENCE.items():
    if not inspect.isclass(public):
        FUNCTIONS[path] = public
        continue
    for name, member in members(public):
        if isinstance(member, (property, cached_property)):
            PROPERTIES[f"{path}.{name}"] = getattr(public, name)
        else:
            FUNCTIONS[f"{path}.{name}"] = getattr(public, name)
PUBLIC = REFERENCE | FUNCTIONS | PROPERTIES
MADE = CLASSES | given()


def described(value: Any) -> Said:
    doc = inspect.getdoc(value)
    assert doc, "no docstring"
    return said(doc)


def parameters(function: Callable[..., Any]) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name not in ("self", "_")]


@pytest.mark.parametrize("module", [noisedesign, noisedesign.noise])
def test_help_of_a_package_groups_its_names(module: ModuleType) -> None:
    """Every name once in the list of what there is, where there is one, and no other."""
    words = inspect.cleandoc(module.__doc__ or "").partition("What there is")[2]
    listed = [w for line in re.findall(r"^[- ] .*$", words, re.M) for w in re.findall(r"\w+", line)]
    named = [word for word in listed if word in module.__all__]
    assert not words or sorted(module.__all__) == sorted(set(named))
    assert all(name in dir(module) for name in module.__all__)
    text = pydoc.plain(pydoc.render_doc(module))
    for name in module.__all__:
        if not isinstance(getattr(module, name), ModuleType):
            assert re.search(rf"^    (class )?{name}\(", text, re.M), name


def is_called(path: str) -> bool:
    """Whether wrong values are given to it."""
    *_, owner, name = path.split(".")
    return f"{owner}.{name}" in CALLS or (name in CALLS and path in REFERENCE)


def begins_with_a_sentence(path: str) -> None:
    value = PUBLIC[path]
    if inspect.isclass(value):
        assert "__doc__" in vars(value), "no docstring of its own"
    summary = described(value).summary
    assert summary.endswith((".", ":")), summary
    assert len(summary) < 300, summary


def test_all_begin_with_a_sentence() -> None:
    holds_for(PUBLIC, begins_with_a_sentence)


def has_an_example(path: str) -> None:
    examples = doctest.DocTestParser().get_examples(inspect.getdoc(REFERENCE[path]) or "")
    assert any(example.want for example in examples), "no example, or one that shows nothing"


def test_all_have_an_example() -> None:
    holds_for(sorted(REFERENCE.keys() - WITHOUT_EXAMPLE), has_an_example)


def says_what_it_takes_and_gives(path: str) -> None:
    function = FUNCTIONS[path]
    doc, signature = described(function), inspect.signature(function)
    assert list(doc.parameters) == parameters(function)
    assert all(doc.parameters.values())
    assert doc.returned == (signature.return_annotation not in (None, "None")), "Returns"
    if CHECKS.search(inspect.getsource(function)) or is_called(path):
        assert doc.errors, "nothing of the errors it raises"


def test_functions_say_what_they_take_and_give() -> None:
    holds_for(FUNCTIONS, says_what_it_takes_and_gives)


def says_what_it_raises(path: str) -> None:
    value = PROPERTIES[path]
    as_read = {"what": "attribute", "name": path}
    lines = napoleon.GoogleDocstring(inspect.getdoc(value), CONFIG, **as_read).lines()
    assert not any(":type:" in line for line in lines), "read as a type: what is before a colon"
    source = inspect.getsource(value.fget if isinstance(value, property) else value.func)
    assert bool(CHECKS.search(source)) <= bool(described(value).errors)


def test_properties_say_what_they_raise() -> None:
    holds_for(PROPERTIES, says_what_it_raises)


def says_what_it_is_made_of(path: str) -> None:
    """What a user gives are arguments, with their errors; what comes out are attributes."""
    value = MADE[path]
    doc = described(value)
    signature = parameters(value) if value.__init__ is not object.__init__ else []
    fields = {f.name for f in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else ()
    told = [*doc.parameters, *doc.attributes]
    public = [name for name in signature if not name.startswith("_")]
    assert set(public) <= set(told), sorted(set(public) - set(told))
    assert set(doc.parameters) <= set(public), sorted(set(doc.parameters) - set(public))
    if kept := set(doc.attributes) - set(fields):
        source = inspect.getsource(value.__init__)
        assert all(re.search(rf"self\.{name}\b", source) for name in kept), kept
    assert all({**doc.parameters, **doc.attributes}.values())
    if doc.parameters and is_called(path):
        assert "InputError" in doc.errors


def test_classes_say_what_they_are_made_of() -> None:
    holds_for(MADE, says_what_it_is_made_of)
