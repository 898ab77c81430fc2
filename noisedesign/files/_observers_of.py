"""What [observers] of a problem file says, as observers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError
from noisedesign.files import _schema
from noisedesign.files._toml import renamed
from noisedesign.files.node_names import row_of
from noisedesign.privacy import views as threats
from noisedesign.privacy.views import Observer

_MAKERS: dict[str, Any] = {
    "pndp": threats.pndp,
    "secure-sum": threats.secure_sum,
    "insider": threats.insider,
    "tap": threats.tap,
}
_RECEIVING = ("pndp", "secure-sum")


def observers_of(table: _schema.ObserversTable, *, names: Sequence[str]) -> tuple[Observer, ...]:
    """An observer for every entry of ``nodes``, a node or a coalition; every node without it.

    Raises:
        InputError: naming ``observers.<key>``.
    """
    if table.own_noise is not None and table.model not in _RECEIVING:
        raise InputError(
            "observers.own_noise",
            expected=f'nothing for observers.model = "{table.model}"',
            got=table.own_noise,
        )
    if table.model == "ldp":
        if table.nodes is not None:
            raise InputError(
                "observers.nodes",
                expected='nothing for observers.model = "ldp"',
                got=_checks.describe(table.nodes),
                remedy="It reads all messages from outside.",
            )
        return (threats.ldp(),)
    entries = list(range(len(names))) if table.nodes is None else table.nodes
    if not entries:
        raise InputError("observers.nodes", expected="one or more observers", got="none")
    options = {} if table.own_noise is None else {"own_noise": table.own_noise}
    coalitions = [entry if isinstance(entry, list) else [entry] for entry in entries]
    with renamed({"observer.nodes": "observers.nodes"}):
        return tuple(
            _MAKERS[table.model](
                nodes=[row_of(node, names, field="observers.nodes") for node in coalition],
                **options,
            )
            for coalition in coalitions
        )


def error_horizon(error: _schema.SpaceErrorTable | None, observers: _schema.ObserversTable) -> int:
    """T of the errors that count: that over which the observers look.

    Raises:
        InputError: naming ``observers.horizon`` or ``error.horizon``.
    """
    horizon = _checks.positive_int(observers.horizon, field="observers.horizon")
    stated = error is not None and "horizon" in error.model_fields_set
    if stated and error is not None and error.horizon != horizon:
        raise InputError(
            "error.horizon",
            expected=f"observers.horizon = {horizon}, or nothing",
            got=str(error.horizon),
        )
    return horizon
