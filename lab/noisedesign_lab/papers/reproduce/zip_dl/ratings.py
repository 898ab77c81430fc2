"""MovieLens as published: the ratings of users dealt to nodes, a start that all nodes share, and a
pass over a node's own ratings, in batches, between two averagings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from noisedesign_lab.datasets import Examples, Places

Single = NDArray[np.float32]
START = 0.05  # half the width of the uniform law of a factor at the start; as decentralizepy
BLOCK = 32  # rows of factors mixed together: 256 kB of a cache at 100 nodes and 20 factors


def place_of(node: Places, row: Places, nodes: int) -> Places:
    """Return where the rows of nodes are in models of shape (blocks, n, BLOCK, factors)."""
    return np.asarray((row // BLOCK * nodes + node) * BLOCK + row % BLOCK)


@dataclass(frozen=True, kw_only=True, eq=False)
class Ratings:
    """Ratings with the node that has each: ``rows``, (N, 2), are those of its user and its film in
    the table of factors, users first."""

    rows: Places
    stars: Single
    node: Places

    def __len__(self) -> int:
        """N."""
        return len(self.stars)

    def at(self, places: Places) -> Ratings:
        """Return the ratings at ``places``."""
        return Ratings(rows=self.rows[places], stars=self.stars[places], node=self.node[places])

    def errors(self, model: Single) -> Single:
        """Return how much one model, (rows, factors), predicts above each rating."""
        user, film = self.rows.T
        return np.asarray(np.einsum("nf,nf->n", model[user], model[film]) - self.stars)

    def errors_at_home(self, models: Single) -> Single:
        """Return the same where every rating is predicted by its own node, of models in blocks."""
        _, nodes, _, factors = models.shape
        home = replace(self, rows=place_of(self.node[:, None], self.rows, nodes))
        return home.errors(models.reshape(-1, factors))


def dealt(every: Examples, nodes: int, share: float, rng: np.random.Generator) -> list[Ratings]:
    """Return training and test ratings: that share of every user's, rounded, is for the test;
    users stay in their order, and the first nodes have one more where they do not divide."""
    user, film = every.features.astype(np.intp).T
    users = int(user.max()) + 1
    node = np.repeat(np.arange(nodes), [len(own) for own in np.array_split(range(users), nodes)])
    count = np.bincount(user)
    order = np.lexsort((rng.random(len(user)), user))
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order)) - np.repeat(np.cumsum(count) - count, count)
    train = rank < np.rint((1 - share) * count)[user]
    found = Ratings(
        rows=np.stack([user, users + film], axis=1),
        stars=every.targets.astype(np.float32),
        node=node[user],
    )
    return [found.at(np.flatnonzero(part)) for part in (train, ~train)]


@dataclass(frozen=True, kw_only=True, eq=False)
class Epoch:
    """A pass of every node over its own ratings in batches of ``size``, each with a step of plain
    SGD on the mean squared error; the gradient of a batch is cut to the norm ``clip``."""

    ratings: Ratings
    size: int
    step_size: float
    clip: float = np.inf

    @cached_property
    def _first(self) -> Places:
        count = np.bincount(self.ratings.node)
        return np.asarray(np.repeat(np.cumsum(count) - count, count))

    def batches(self, rng: np.random.Generator) -> Iterator[Ratings]:
        """Yield the first batch of all nodes, their second, and so on, in an order drawn anew."""
        order = np.lexsort((rng.random(len(self.ratings)), self.ratings.node))
        number = (np.arange(len(order)) - self._first) // self.size
        by_number = np.argsort(number, kind="stable")
        cuts = np.cumsum(np.bincount(number))[:-1]
        for places in np.split(order[by_number], cuts):
            yield self.ratings.at(places)

    def run(self, lanes: Single, rng: np.random.Generator, present: NDArray[np.bool_]) -> None:
        """Train ``lanes``, (E, blocks, n, BLOCK, factors), in place, at the nodes present."""
        _, _, nodes, _, factors = lanes.shape
        for whole in self.batches(rng):
            batch = whole if present.all() else whole.at(np.flatnonzero(present[whole.node]))
            m = len(batch)
            # Rows of all nodes' models in one table; each that is met sums what it is told.
            met = place_of(batch.node[:, None], batch.rows, nodes).T.ravel()
            order = np.argsort(met, kind="stable")
            starts = np.flatnonzero(np.diff(met[order], prepend=-1))
            changed, user, film = met[order[starts]], met[:m], met[m:]
            at = changed // BLOCK % nodes
            sums = csr_array(
                (np.ones(2 * m, np.float32), order, np.append(starts, 2 * m)), (len(starts), 2 * m)
            )
            shares = (2 / np.bincount(batch.node, minlength=nodes)[batch.node]).astype(np.float32)
            for models in lanes.reshape(len(lanes), -1, factors):
                liked, shown = models[user], models[film]
                error = np.einsum("mf,mf->m", liked, shown) - batch.stars
                slopes = (shares * error)[:, None]
                gradient = sums @ np.concatenate([slopes * shown, slopes * liked])
                if np.isfinite(self.clip):
                    squares = np.einsum("kf,kf->k", gradient, gradient)
                    norms = np.sqrt(np.bincount(at, squares, minlength=nodes))
                    factor = self.clip / np.maximum(norms, self.clip)
                    gradient *= factor[at, None].astype(np.float32)
                gradient *= np.float32(self.step_size)
                models[changed] -= gradient
