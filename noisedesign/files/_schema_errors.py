"""One sentence out of pydantic's list of errors: the dotted key, what was expected, what came."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from noisedesign.base.checks import InputError, describe

_EXPECTED = {
    "int_type": "an integer",
    "float_type": "a number",
    "string_type": "a string",
    "string_too_short": "a non-empty string",
    "list_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
}
_TABLES = ("graph", "workload", "participation", "budget", "limits", "privacy", "reference",
           "algorithm", "observer", "observers", "structure", "error", "mixing")  # fmt: skip
_OTHER_DESIGN = {
    "budget": '"space" or "space-time"',
    "limits": '"space" or "space-time"',
    "workload": '"time"',
    "observers": '"space"',
}
_OTHER_FILE = {
    **dict.fromkeys(("algorithm", "observer"), "account files, which `noisedesign account` reads"),
    **dict.fromkeys(
        ("problem", "grid", "backends", "gap", "time_limit"),
        "sweep files, which `noisedesign sweep` reads",
    ),
}
BELONGS = {
    **{key: f"{key} is a key of {file}." for key, file in _OTHER_FILE.items()},
    **{key: f"[{key}] belongs to design = {design}." for key, design in _OTHER_DESIGN.items()},
}
"""What to say of a key at the top of a problem file that belongs to another design or file."""


def to_input_error(
    error: ValidationError, data: Mapping[str, Any], *, belongs: Mapping[str, str]
) -> InputError:
    """The first problem pydantic found in ``data``, as an :class:`InputError`.

    Args:
        belongs: what to say of keys at the top that belong to another kind of file.
    """
    details = error.errors(include_url=False)[0]
    context: Mapping[str, Any] = details.get("ctx", {})
    path = _path(details, data)
    match details["type"]:
        case "unknown_key":
            return _unknown_key(path, context["key"], context["allowed"], belongs)
        case "missing":
            expected = f"a [{path[-1]}] table" if path[-1] in _TABLES else "a value"
            return InputError(_dotted(path), expected=expected, got="nothing")
        case "union_tag_not_found":
            key = _quoted(context["discriminator"])[0]
            remedy = "" if path else next((belongs[key] for key in data if key in belongs), "")
            return InputError(
                _dotted([*path, key]), expected="a value", got="nothing", remedy=remedy
            )
        case "union_tag_invalid":
            key = _quoted(context["discriminator"])[0]
            words = _quoted(context["expected_tags"])
            return _wrong_word([*path, key], words, details["input"][key])
        case "literal_error":
            return _wrong_word(path, _quoted(context["expected"]), details["input"])
        case kind:
            expected = _EXPECTED.get(kind, details["msg"])
            return InputError(_dotted(path), expected=expected, got=describe(details["input"]))


def _path(details: ErrorDetails, data: Mapping[str, Any]) -> list[str]:
    """The keys as the user wrote them: pydantic's location less the names of union members."""
    path: list[str] = []
    here: Any = data
    entered = False  # whether the member's name of this table has been passed: a key may share it
    for step in details["loc"]:
        is_key = isinstance(here, dict) and step in here
        is_member = is_key and step in (here.get("design"), here.get("kind"), here.get("model"))
        is_index = isinstance(here, list) and isinstance(step, int)
        if is_member and not entered:
            entered = True
        elif is_index or is_key:
            path.append(str(step))
            here, entered = here[step], False
    if details["type"] == "missing":
        path.append(str(details["loc"][-1]))
    return path


def _dotted(path: Sequence[str]) -> str:
    return ".".join(path)


def _unknown_key(
    path: Sequence[str], key: str, allowed: Sequence[str], belongs: Mapping[str, str]
) -> InputError:
    remedy = did_you_mean(key, allowed)
    if not path and key in belongs:
        remedy = belongs[key]
    where = f"[{_dotted(path)}]" if path else "the file"
    return InputError(
        _dotted([*path, key]),
        expected=f"only the keys {', '.join(allowed)} in {where}",
        got=f"unknown key {key}",
        remedy=remedy,
    )


def _wrong_word(path: Sequence[str], words: Sequence[str], value: Any) -> InputError:
    return InputError(
        _dotted(path),
        expected="one of " + ", ".join(words),
        got=describe(value),
        remedy=did_you_mean(value, words),
    )


def did_you_mean(word: Any, known: Sequence[str]) -> str:
    """A sentence with the word most like one that is not known, or nothing."""
    close = difflib.get_close_matches(word, known, n=1) if isinstance(word, str) else []
    return f"Did you mean {close[0]}?" if close else ""


def _quoted(text: str) -> list[str]:
    return re.findall(r"'([^']*)'", text)
