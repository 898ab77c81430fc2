"""D-SGD's recursion, run as nodes run it: the one place where noise is propagated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError


def check_shape(matrix: Array, *, field: str, size: int, of: str) -> None:
    """Refuse a square matrix that is not size x size."""
    if len(matrix) != size:
        raise InputError(field, expected=f"shape ({size}, {size}), {of}", got=f"{matrix.shape}")


def mixing_or_single(mixing: Any) -> Array:
    """W, shape (n, n), or [[1]] for a model that nobody shares (``mixing`` None)."""
    return (
        np.ones((1, 1)) if mixing is None else _checks.matrix(mixing, field="mixing", square=True)
    )


def run(
    mixing: Array | Callable[[Array], Array], updates: Iterable[Array]
) -> Iterator[tuple[Array, Array]]:
    """theta_1 = 0; theta_{t+1/2} = theta_t + x_t is sent; theta_{t+1} = W theta_{t+1/2}.

    Args:
        mixing: W, shape (n, n), or what makes iterates of messages.
        updates: x_t for t = 1, 2, ..., each of shape (n, columns): noise, or gradient and noise.

    Yields:
        (messages theta_{t+1/2}, iterates theta_{t+1}), both of shape (n, columns).
    """
    mix = mixing if callable(mixing) else mixing.__matmul__
    iterates: Array | float = 0.0
    for update in updates:
        messages = iterates + update
        iterates = mix(messages)
        yield messages, iterates


def message_weights(mixing: Array, weights: Array) -> Array:
    """Weights v of messages with <v, messages> = <``weights``, updates>, shape (T, n, columns).

    x_t = theta_{t+1/2} - W theta_{t-1/2}, W singular or not, so v_t = w_t - W^T w_{t+1}.
    """
    found = weights.copy()
    found[:-1] -= mixing.T @ weights[1:]
    return found
