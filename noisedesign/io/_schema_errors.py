"""One sentence out of pydantic's list of errors: the dotted key, what was expected, what came."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from noisedesign._checks import InputError, describe

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
_TABLES = ("graph", "workload", "participation", "budget", "limits", "privacy", "reference")
_OTHER_DESIGN = {"budget": "space", "limits": "space", "workload": "time", "participation": "time"}


def to_input_error(error: ValidationError, data: Mapping[str, Any]) -> InputError:
    """The first problem pydantic found in ``data``, as an :class:`InputError`."""
    details = error.errors(include_url=False)[0]
    context: Mapping[str, Any] = details.get("ctx", {})
    path = _path(details, data)
    match details["type"]:
        case "unknown_key":
            return _unknown_key(path, context["key"], context["allowed"])
        case "missing":
            expected = f"a [{path[-1]}] table" if path[-1] in _TABLES else "a value"
            return InputError(_dotted(path), expected=expected, got="nothing")
        case "union_tag_not_found":
            key = _quoted(context["discriminator"])[0]
            return InputError(_dotted([*path, key]), expected="a value", got="nothing")
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
    for step in details["loc"]:
        is_key = isinstance(here, dict) and step in here
        is_member = is_key and step in (here.get("design"), here.get("kind"))
        is_index = isinstance(here, list) and isinstance(step, int)
        if is_index or (is_key and not is_member):
            path.append(str(step))
            here = here[step]
    if details["type"] == "missing":
        path.append(str(details["loc"][-1]))
    return path


def _dotted(path: Sequence[str]) -> str:
    return ".".join(path) or "problem"


def _unknown_key(path: Sequence[str], key: str, allowed: Sequence[str]) -> InputError:
    remedy = _did_you_mean(key, allowed)
    if not path and key in _OTHER_DESIGN:
        remedy = f'[{key}] belongs to design = "{_OTHER_DESIGN[key]}".'
    where = f"[{_dotted(path)}]" if path else "the file"
    return InputError(
        _dotted([*path, key]), expected=f"only the keys {', '.join(allowed)} in {where}",
        got=f"unknown key {key}", remedy=remedy,
    )  # fmt: skip


def _wrong_word(path: Sequence[str], words: Sequence[str], value: Any) -> InputError:
    return InputError(
        _dotted(path), expected="one of " + ", ".join(words), got=describe(value),
        remedy=_did_you_mean(value, words),
    )  # fmt: skip


def _did_you_mean(word: Any, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1) if isinstance(word, str) else []
    return f"Did you mean {close[0]}?" if close else ""


def _quoted(text: str) -> list[str]:
    return re.findall(r"'([^']*)'", text)
