"""Ratings as products of what a user likes and what a film is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array
from noisedesign_lab.datasets import Examples, Places
from noisedesign_lab.training.losses.loss import Batch, Loss, clipped_weights, spans


@dataclass(frozen=True, kw_only=True)
class MatrixFactorization(Loss):
    """f(theta; (i, j), r) = (center + <u_i, v_j> - r)^2, for the rating r of film j by user i.

    theta holds the factors u of all users, row by row, then those v of all films (Zip-DL, section
    6.1, and the code of decentralizepy, where nothing is private and ``center`` is 0).

    Where users are private, their factors never leave their node. The gradient of an example is
    clipped by the norm of what leaves the node, ``2 |error| |u_i|``; the factors of the user move
    by the gradient as it is. They remember the records of the node, so that a record changes what
    is sent at later steps as well, in which it takes no part: only an account that counts all steps
    of the node holds.

    Args:
        users: how many there are.
        items: how many films.
        factors: how many factors each has.
        center: what a product of 0 predicts.
        private_users: whether the factors of users stay where they are.

    Raises:
        InputError: another number of users, items or factors.

    Examples:
        >>> import numpy as np
        >>> from noisedesign_lab.datasets import Examples
        >>> from noisedesign_lab.training.losses import MatrixFactorization
        >>> loss = MatrixFactorization(users=2, items=1, factors=1)
        >>> loss.private
        slice(0, 2, None)
        >>> one = Examples(features=np.array([[1.0, 0.0]]), targets=np.array([4.0]))
        >>> print(loss.value(np.array([9.0, 2.0, 1.5]), one))  # (2 * 1.5 - 4)^2
        1.0
    """

    users: int
    items: int
    factors: int = 20
    center: float = 0.0
    private_users: bool = True

    def __post_init__(self) -> None:
        for name in ("users", "items", "factors"):
            _checks.positive_int(getattr(self, name), field=f"loss.{name}")
        _checks.real(self.center, field="loss.center")

    @property
    def dimension(self) -> int:
        return (self.users + self.items) * self.factors

    @property
    def private(self) -> slice | None:
        return slice(0, self.users * self.factors) if self.private_users else None

    def start(self, rng: np.random.Generator) -> Array:
        # Uniform in +-0.05, as in decentralizepy.
        return rng.uniform(-0.05, 0.05, self.dimension)

    def clipped_sums(self, models: Array, batch: Batch, *, clip: float) -> Array:
        user, film = self._rows(batch.features)  # (S, n, m)
        # (S, n, rows, E, f): a row of every lane at once
        rows = models.reshape(*models.shape[:-1], -1, self.factors).swapaxes(2, 3)
        at = np.arange(models.shape[0])[:, None, None], np.arange(models.shape[1])[:, None]
        liked, shown = rows[*at, user], rows[*at, film]  # (S, n, m, E, f)
        product = np.einsum("snmef,snmef->snme", liked, shown)
        slopes = 2 * (self.center + product - batch.targets[..., None])
        squares = np.einsum("snmef,snmef->snme", liked, liked)
        if not self.private_users:
            squares = squares + np.einsum("snmef,snmef->snme", shown, shown)
        norms = np.abs(slopes) * np.sqrt(squares)
        clipped = slopes * clipped_weights(norms, batch.present, clip=clip)
        kept = slopes * batch.present[..., None] if self.private_users else clipped
        sums = np.zeros_like(models)
        into = sums.reshape(*models.shape[:-1], -1, self.factors).swapaxes(2, 3)
        np.add.at(into, (*at, user), kept[..., None] * shown)
        np.add.at(into, (*at, film), clipped[..., None] * liked)
        return sums

    def value(self, models: Array, examples: Examples) -> Array:
        user, film = self._rows(examples.features)
        flat = models.reshape(-1, self.users + self.items, self.factors)
        values = np.zeros(len(flat))
        for part in spans(len(examples), self.factors):
            for at, rows in enumerate(flat):
                product = np.einsum("nf,nf->n", rows[user[part]], rows[film[part]])
                values[at] += np.square(self.center + product - examples.targets[part]).sum()
        return (values / len(examples)).reshape(models.shape[:-1])

    def _rows(self, features: Array) -> tuple[Places, Places]:
        """Return the rows of the factors of users and films."""
        whole = features.astype(np.intp)
        return whole[..., 0], self.users + whole[..., 1]
