"""Strict pydantic models of the tables of TOML files, and one sentence out of pydantic's errors.

The sentence names the dotted key, what was expected there, and what was got."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    TypeAdapter,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from noisedesign.base.checks import InputError, describe, did_you_mean

Read = TypeVar("Read")

Text = Annotated[str, Field(min_length=1)]


ScalarOrList = Annotated[
    Annotated[float, Tag("scalar")] | Annotated[list[float], Tag("list")],
    Discriminator(lambda value: "list" if isinstance(value, list) else "scalar"),
]
CapOrNone = Annotated[
    Annotated[float, Tag("scalar")]
    | Annotated[list[float], Tag("list")]
    | Annotated[Literal["none"], Tag("none")],
    Discriminator(lambda value: {list: "list", str: "none"}.get(type(value), "scalar")),
]


class Table(BaseModel):
    """A TOML table: no unknown keys, no conversions."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        # Before the fields, so that a misspelt key is reported as itself and not as missing.
        for key in data if isinstance(data, dict) else ():
            if key not in cls.model_fields:
                context = {"key": key, "allowed": sorted(cls.model_fields)}
                raise PydanticCustomError("unknown_key", "unknown key {key}", context)
        return data


def of_kind(tables: Callable[[], tuple[type[Table], ...]], *, key: str = "kind") -> PlainValidator:
    """A validator by the table that ``key`` names, of those there are when a file is read."""

    def validated_by_kind(value: Any) -> Any:
        if isinstance(value, dict) and key not in value:
            kinds = [get_args(table.model_fields[key].annotation) for table in tables()]
            context = {"key": key, "words": [word for words in kinds for word in words]}
            raise PydanticCustomError("no_kind", "no {key}", context)
        return _union(tables(), key).validate_python(value)

    return PlainValidator(validated_by_kind)


@cache
def _union(tables: tuple[type[Table], ...], key: str) -> TypeAdapter[Any]:
    any_of: Any = Annotated[Union[tables], Field(discriminator=key)]  # noqa: UP007
    return TypeAdapter(any_of)


def table_of_kind(
    kind: str, keys: Mapping[str, Any], *, base: type[Table], key: str = "kind"
) -> type[Table]:
    """``base`` for one kind, with its keys: a type of each, or a type and a default."""
    fields: dict[str, Any] = {key: (Literal[kind], ...)}
    fields |= {name: of if isinstance(of, tuple) else (of, ...) for name, of in keys.items()}
    return create_model(f"{kind} {base.__name__}", __base__=base, **fields)


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
_TABLES = {"participation", "graph", "workload", "algorithm", "observer", "data", "loss"}


def validated(
    model: TypeAdapter[Read], data: Mapping[str, Any], *, belongs: Mapping[str, str]
) -> Read:
    """The tables of ``data``, their names and types checked."""
    try:
        return model.validate_python(data)
    except ValidationError as error:
        raise _told(error, data, belongs) from None


def _told(
    error: ValidationError, data: Mapping[str, Any], belongs: Mapping[str, str]
) -> InputError:
    """The first problem pydantic found in ``data``."""
    details = error.errors(include_url=False)[0]
    context: Mapping[str, Any] = details.get("ctx", {})
    path = _path(details, data)
    match details["type"]:
        case "unknown_key":
            return _unknown_key(path, context["key"], context["allowed"], belongs)
        case "missing":
            expected = f"a [{path[-1]}] table" if path[-1] in _TABLES else "a value"
            return InputError(".".join(path), expected=expected, got="nothing")
        case "no_kind":
            key, expected = context["key"], "one of " + ", ".join(context["words"])
            wrote = {"kind": "model", "model": "kind"}.get(key)
            remedy = f"You wrote {wrote}: did you mean {key}?" if wrote in details["input"] else ""
            return InputError(
                ".".join([*path, key]), expected=expected, got="nothing", remedy=remedy
            )
        case "union_tag_not_found":
            key = _quoted(context["discriminator"])[0]
            remedy = "" if path else next((belongs[key] for key in data if key in belongs), "")
            return InputError(
                ".".join([*path, key]), expected="a value", got="nothing", remedy=remedy
            )
        case "union_tag_invalid":
            key = _quoted(context["discriminator"])[0]
            words = _quoted(context["expected_tags"])
            return _wrong_word([*path, key], words, details["input"][key])
        case "literal_error":
            return _wrong_word(path, _quoted(context["expected"]), details["input"])
        case "value_error" if isinstance(context.get("error"), InputError):
            refusal: InputError = context["error"]
            return refusal
        case kind:
            expected = _EXPECTED.get(kind, details["msg"])
            return InputError(".".join(path), expected=expected, got=describe(details["input"]))


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


def _unknown_key(
    path: Sequence[str], key: str, allowed: Sequence[str], belongs: Mapping[str, str]
) -> InputError:
    remedy = did_you_mean(key, allowed)
    if not path and key in belongs:
        remedy = belongs[key]
    where = f"[{'.'.join(path)}]" if path else "the file"
    expected = f"only the keys {', '.join(allowed)} in {where}"
    got = f"unknown key {key}"
    return InputError(".".join([*path, key]), expected=expected, got=got, remedy=remedy)


def _wrong_word(path: Sequence[str], words: Sequence[str], value: Any) -> InputError:
    expected = "one of " + ", ".join(words)
    got = describe(value)
    return InputError(".".join(path), expected=expected, got=got, remedy=did_you_mean(value, words))


def _quoted(text: str) -> list[str]:
    return re.findall(r"'([^']*)'", text)
