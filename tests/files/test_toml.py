"""TOML that is refused, and a key that is not known with the one that was meant."""

from __future__ import annotations

import pytest

from noisedesign.base.checks import InputError
from noisedesign.files.schema import did_you_mean
from noisedesign.files.toml import parsed


def test_an_integer_of_thousands_of_digits_is_refused() -> None:
    for text, key in (
        (f"[graph]\nnodes = {'9' * 5000}", "graph.nodes"),
        (f"a = [1, {'9' * 5000}]", "a"),
    ):
        with pytest.raises(InputError, match=f"^{key}.*: expected .*, got one of 5,000 digits"):
            parsed(text, field="problem")


def test_the_beginning_of_a_key_suggests_it() -> None:
    known = ("clip", "delta", "epsilon", "conversion")
    assert did_you_mean("eps", known) == "Did you mean epsilon?"
    assert did_you_mean("detla", known) == "Did you mean delta?"
    assert did_you_mean("zzz", known) == ""
