"""Tables as TOML text: always the same text for the same tables, so that it can be hashed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def dumped(tables: Mapping[str, Any]) -> str:
    """TOML text that says what ``tables`` says: one sorted key a line, tables inline.

    Args:
        tables: of strings, integers, floats, booleans, lists and tables of them.
    """
    return "".join(f"{_key(key)} = {_value(tables[key])}\n" for key in sorted(tables))


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _string(key)


def _string(text: str) -> str:
    # The escapes of JSON are escapes of TOML; DEL is the one character that only TOML escapes.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def _value(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case float():
            return repr(value) if math.isfinite(value) else str(value)
        case str():
            return _string(value)
        case list():
            return "[" + ", ".join(map(_value, value)) + "]"
        case dict():
            pairs = (f"{_key(key)} = {_value(value[key])}" for key in sorted(value))
            return "{" + ", ".join(pairs) + "}"
    raise TypeError(f"no TOML for {value!r}")
