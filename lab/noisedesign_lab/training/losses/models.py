"""Losses of models that learn from data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array
from noisedesign_lab.datasets import Examples, Places
from noisedesign_lab.training.losses.loss import Batch, Loss, clipped_weights, spans


@dataclass(frozen=True, kw_only=True)
class _OfScores(Loss):
    """A loss of <a, theta> and the target b, and ``regularization / 2 |theta|^2``."""

    features: int
    regularization: float = 0.0
    intercept: bool = False

    def __post_init__(self) -> None:
        _checks.positive_int(self.features, field="loss.features")
        _checks.nonnegative(self.regularization, field="loss.regularization")

    def _slopes(self, scores: Array, targets: Array) -> Array:
        """Derivatives of the loss by the score."""
        raise NotImplementedError

    def _losses(self, scores: Array, targets: Array) -> Array:
        raise NotImplementedError

    @property
    def dimension(self) -> int:
        return self.features + self.intercept

    def clipped_sums(self, models: Array, batch: Batch, *, clip: float) -> Array:
        features, targets = self._inputs(batch.features), batch.targets
        sums, (seeds, nodes, lanes, _) = np.empty_like(models), models.shape
        for seed in range(seeds):
            for part in spans(nodes, lanes * targets.shape[-1]):  # what caches hold
                of = seed, part
                sums[of] = self._sums(
                    models[of], features[of], targets[of], batch.present[of], clip
                )
        return sums

    def _sums(
        self, models: Array, features: Array, targets: Array, present: Array, clip: float
    ) -> Array:
        """The sums of some nodes: models (n, E, d), features (n, m, d), the others (n, m)."""
        scores, decay = models @ features.swapaxes(-1, -2), self.regularization  # (n, E, m)
        slopes = self._slopes(scores, targets[:, None])
        squares = np.einsum("nmd,nmd->nm", features, features)[:, None] * slopes**2
        if decay:
            scores *= slopes
            scores *= 2 * decay
            squares += scores
            squares += decay**2 * np.einsum("ned,ned->ne", models, models)[..., None]
        norms = np.sqrt(np.maximum(squares, 0, out=squares), out=squares)
        weights = clipped_weights(norms.swapaxes(-1, -2), present, clip=clip).swapaxes(-1, -2)
        sums = np.asarray((weights * slopes) @ features)
        if decay:
            sums += decay * weights.sum(axis=-1)[..., None] * models
        return sums

    def value(self, models: Array, examples: Examples) -> Array:
        penalty = self.regularization / 2 * np.square(models).sum(axis=-1)
        return np.asarray(self._mean(models, examples, self._losses) + penalty)

    def _mean(
        self, models: Array, examples: Examples, of: Callable[[Array, Array], NDArray[Any]]
    ) -> Array:
        """Mean over the examples of a function of their scores and targets."""
        features, targets = self._inputs(examples.features), examples.targets
        flat = models.reshape(-1, models.shape[-1])
        sums = np.zeros(len(flat))
        for part in spans(len(examples), len(flat)):
            sums += of(flat @ features[part].T, targets[part]).sum(axis=1)
        return (sums / len(examples)).reshape(models.shape[:-1])

    def _inputs(self, features: Array) -> Array:
        return _with_ones(features) if self.intercept else features


@dataclass(frozen=True, kw_only=True)
class LeastSquares(_OfScores):
    """``(<a, theta> - b)^2 / 2 + regularization / 2 |theta|^2`` for features a, target b.

    With an intercept the model has one more coordinate, the last, and every example a last feature
    1; the regularisation includes it.

    Args:
        features: the number p of features.
        regularization: a number >= 0.
        intercept: whether a constant is added to <a, theta>.

    Raises:
        InputError: another number of features or regularization.

    Examples:
        >>> import numpy as np
        >>> from noisedesign_lab.datasets import Examples
        >>> from noisedesign_lab.training.losses import LeastSquares
        >>> two = Examples(features=np.array([[1.0], [3.0]]), targets=np.array([0.0, 2.0]))
        >>> print(LeastSquares(features=1).value(np.ones(1), two))  # (1 + 1) / 2, halved
        0.5
    """

    def _slopes(self, scores: Array, targets: Array) -> Array:
        return scores - targets

    def _losses(self, scores: Array, targets: Array) -> Array:
        return np.square(scores - targets) / 2

    def accuracy(self, models: Array, examples: Examples) -> None:
        return None


@dataclass(frozen=True, kw_only=True)
class Logistic(_OfScores):
    """``log(1 + exp(-b <a, theta>)) + regularization / 2 |theta|^2`` for features a, target b.

    With an intercept the model has one more coordinate, the last, and every example a last feature
    1; the regularisation includes it. An example's gradient, which is clipped, is
    -b s a + regularization theta with s = 1 / (1 + exp(b <a, theta>)).

    Args:
        features: the number p of features.
        regularization: a number >= 0.
        intercept: whether a constant is added to <a, theta>.

    Raises:
        InputError: another number of features or regularization.

    Examples:
        >>> import numpy as np
        >>> from noisedesign_lab.datasets import Examples
        >>> from noisedesign_lab.training.losses import Logistic
        >>> loss = Logistic(features=1)
        >>> two = Examples(features=np.array([[1.0], [3.0]]), targets=np.array([-1.0, 1.0]))
        >>> print(f"{loss.value(np.zeros(1), two):.4f}")  # log 2
        0.6931
        >>> print(loss.accuracy(np.ones(1), two))
        0.5
    """

    def _slopes(self, scores: Array, targets: Array) -> Array:
        return np.asarray(-targets * expit(-targets * scores))

    def _losses(self, scores: Array, targets: Array) -> Array:
        return np.logaddexp(0.0, -(scores * targets))

    def accuracy(self, models: Array, examples: Examples) -> Array:
        # An example on the hyperplane is on no label's side.
        return self._mean(models, examples, lambda scores, targets: scores * targets > 0)


@dataclass(frozen=True, kw_only=True)
class MLP(Loss):
    """f(theta; x, y) = (v . max(0, U x + a) + b - y)^2, for one hidden layer of h units.

    theta holds, unit by unit, the row of U and the entry of a, then v, then b: d = h (p + 2) + 1
    coordinates, 641 for 8 features and 64 units (Mafalda-SGD, section 7.2). The squared loss has no
    factor 1/2, as the mean squared error of that paper. Its derivative where a unit is exactly at
    its kink is taken as 0, as trainers do.

    Args:
        features: the number p of features.
        hidden: the number h of units.

    Raises:
        InputError: another number of features or units.

    Examples:
        >>> import numpy as np
        >>> from noisedesign_lab.datasets import Examples
        >>> from noisedesign_lab.training.losses import MLP
        >>> MLP(features=8, hidden=64).dimension
        641
        >>> one = Examples(features=np.array([[2.0]]), targets=np.array([1.0]))
        >>> model = np.array([1.0, -1.5, 4.0, 0.0])  # 4 max(0, x - 1.5)
        >>> print(MLP(features=1, hidden=1).value(model, one))
        1.0
    """

    features: int
    hidden: int = 64

    def __post_init__(self) -> None:
        _checks.positive_int(self.features, field="loss.features")
        _checks.positive_int(self.hidden, field="loss.hidden")

    @property
    def dimension(self) -> int:
        return self.hidden * (self.features + 2) + 1

    def start(self, rng: np.random.Generator) -> Array:
        # Uniform in +-1/sqrt(inputs of the layer), weights and constants, as PyTorch's Linear.
        layers = (self.features, self.hidden * (self.features + 1)), (self.hidden, self.hidden + 1)
        return np.concatenate([rng.uniform(-1, 1, size) / np.sqrt(of) for of, size in layers])

    def clipped_sums(self, models: Array, batch: Batch, *, clip: float) -> Array:
        seeds, nodes, lanes, _ = models.shape
        size = batch.places.shape[-1]
        flat = models.reshape(seeds * nodes, lanes, self.dimension)
        inputs = _with_ones(batch.features).reshape(seeds * nodes, size, self.features + 1)
        targets = batch.targets.reshape(seeds * nodes, size)
        present = batch.present.reshape(seeds * nodes, size)
        sums = np.empty_like(flat)
        for part in spans(len(flat), size * lanes * self.hidden):
            sums[part] = self._sums(flat[part], inputs[part], targets[part], present[part], clip)
        return sums.reshape(models.shape)

    def _sums(
        self, models: Array, inputs: Array, targets: Array, present: Array, clip: float
    ) -> Array:
        """Return the sums of a few nodes, of models (k, E, d) and inputs (k, m, p + 1)."""
        k, lanes, _ = models.shape
        m, h = inputs.shape[1], self.hidden
        first, second, constant = self._layers(models)
        into = first.reshape(k, lanes * h, -1).swapaxes(-1, -2)  # (k, p + 1, E h)
        units = (inputs @ into).reshape(k, m, lanes, h)
        on = (units > 0).astype(np.float64)
        np.maximum(units, 0.0, out=units)
        output = np.einsum("kmeh,keh->kem", units, second) + constant
        residual = 2 * (output - targets[:, None])
        through = np.einsum("kmeh,keh->kem", on, second**2)
        through *= np.einsum("kmp,kmp->km", inputs, inputs)[:, None]
        # |gradient|^2 = 4 r^2 (|x, 1|^2 sum over units that are on of v^2 + |units|^2 + 1)
        squares = residual**2 * (through + np.einsum("kmeh,kmeh->kem", units, units) + 1)
        norms = np.sqrt(squares).swapaxes(1, 2)[None]  # (1, k, m, E)
        weights = clipped_weights(norms, present[None], clip=clip)[0].swapaxes(1, 2) * residual
        sums = np.empty_like(models)
        into_sums, second_sums, constant_sums = self._layers(sums)
        on *= weights.swapaxes(1, 2)[..., None]
        outer = on.reshape(k, m, lanes * h).swapaxes(-1, -2) @ inputs  # (k, E h, p + 1)
        np.multiply(outer.reshape(into_sums.shape), second[..., None], out=into_sums)
        second_sums[...] = (weights[:, :, None] @ units.swapaxes(1, 2))[:, :, 0]
        constant_sums[...] = weights.sum(axis=2, keepdims=True)
        return sums

    def _layers(self, models: Array) -> tuple[Array, Array, Array]:
        """Views: (U, a), shape (..., h, p + 1); v, shape (..., h); b, shape (..., 1)."""
        cut = self.hidden * (self.features + 1)
        first = models[..., :cut].reshape(*models.shape[:-1], self.hidden, self.features + 1)
        return first, models[..., cut:-1], models[..., -1:]

    def value(self, models: Array, examples: Examples) -> Array:
        inputs, targets = np.ascontiguousarray(_with_ones(examples.features).T), examples.targets
        flat = models.reshape(-1, self.dimension)
        sums = np.zeros(len(flat))
        for part in spans(len(examples), self.hidden):
            entering, wanted = inputs[:, part], targets[part]
            for at, model in enumerate(flat):
                first, second, constant = self._layers(model)
                units = first @ entering
                np.maximum(units, 0.0, out=units)
                residual = second @ units + (constant - wanted)
                sums[at] += residual @ residual
        return (sums / len(examples)).reshape(models.shape[:-1])


def _with_ones(features: Array) -> Array:
    return np.concatenate([features, np.ones((*features.shape[:-1], 1))], axis=-1)


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
