"""Keras 3 on PyTorch: models whose ``fit`` clips every record, and moves by designed noise.

Keras knows the mean gradient of a batch alone, so a step here is one of PyTorch's vectorised
gradients. On JAX and TensorFlow ``fit`` compiles its steps, and is refused."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import torch

from noisedesign.adapters.alone import clip_factors
from noisedesign.adapters.pytorch import add_to
from noisedesign.adapters.run import Run
from noisedesign.base.checks import InputError
from noisedesign.noise.source import NodeNoise


class DesignedNoise:
    """Put before a Keras model, ``class Net(DesignedNoise, keras.Model)``: its ``fit`` takes what
    :meth:`private` gives, one batch a step, and every gradient that moves it has noise.

    Losses and metrics of training are computed from the data and have no noise: ``fit`` reports
    none. Evaluate on data that are not private.

    Examples:
        >>> import keras
        >>> import noisedesign as nd
        >>> import numpy as np
        >>> from noisedesign.adapters.keras import DesignedNoise
        >>> from noisedesign.noise import noise
        >>> class Net(DesignedNoise, keras.Sequential):
        ...     pass
        >>> target = nd.PrivacyTarget(epsilon=1.0, clip=1.0)
        >>> scheme = nd.participation.FixedEpoch(epochs=2, separation=3)
        >>> problem = nd.TimeProblem.prefix(participation=scheme, privacy=target)
        >>> model = Net([keras.layers.Input((4,)), keras.layers.Dense(1)])
        >>> model.compile(keras.optimizers.SGD(0.1), keras.losses.MeanSquaredError())
        >>> source = noise(nd.solve(problem).design, node=0, record=False)
        >>> data = model.private(np.zeros((9, 4), "float32"), np.zeros((9, 1)), source, clip=1.0)
        >>> _ = model.fit(data, verbose=0)
        >>> data.run.step
        6
    """

    _private: PrivateData | None = None

    def private(
        self, x: Any, y: Any, noise: NodeNoise, *, clip: float, steps: int | None = None
    ) -> PrivateData:
        """Give what ``fit`` trains on: the batches of the design, in its order, from the next step.

        Args:
            x: a row a record, what the model takes.
            y: a row a record, what its loss takes.
            noise: of the node.
            clip: the norm that gradients are clipped to; must be the design's.
            steps: of an epoch, as Keras counts them; by default all that are left.

        Returns:
            The data; ``data.run`` says which step is next, and has the state for checkpoints.

        Raises:
            InputError: as :class:`Run`; x and y of other lengths; another backend than PyTorch;
                layers that keep averages of the data, regularisers, and losses that are scaled.
        """
        _check(self)
        return PrivateData(x, y, Run(noise, clip=clip), steps)

    def fit(self, x: Any, *others: Any, **how: Any) -> Any:
        """Keras's ``fit`` on what :meth:`private` gives, and on nothing else.

        Args:
            x: that.
            *others: nothing; labels are in it.
            **how: epochs, callbacks and so on, as Keras has them.

        Returns:
            Keras's history.

        Raises:
            InputError: other data.
        """
        if not isinstance(x, PrivateData) or others:
            expected = "what model.private(x, y, noise, clip=...) gives"
            raise InputError(
                "fit", expected=expected, got=type(x).__name__ if not others else "more"
            )
        _check(self)
        self._private = x
        try:
            return super().fit(x, **how)  # type: ignore[misc]
        finally:
            self._private = None

    def train_step(self, _: Any) -> dict[str, Any]:
        """A step of ``fit``, as Keras calls it."""
        if self._private is None:
            got = "another way to train"
            raise InputError("train_step", expected="a step of fit", got=got)
        self._private.step(self)
        return {}


class PrivateData(keras.utils.PyDataset):
    """The batches of a design for ``fit``, each drawn when its step is due."""

    def __init__(self, x: Any, y: Any, run: Run, steps: int | None) -> None:
        super().__init__(workers=1, use_multiprocessing=False)
        self.run = run
        self._x, self._y = torch.as_tensor(np.asarray(x)), torch.as_tensor(np.asarray(y))
        if len(self._x) != len(self._y):
            expected = f"a row for each of the {len(self._x)} records of x"
            raise InputError("y", expected=expected, got=f"{len(self._y)} rows")
        self.batches = run.batches(len(self._x))
        mean = getattr(self.batches, "expected_size", None)
        self._size = mean or max(len(self.batches[t]) for t in range(run.horizon))
        self._steps = steps

    def __len__(self) -> int:
        """Steps of an epoch: no more than are left."""
        left = self.run.horizon - self.run.step
        return left if self._steps is None else min(left, self._steps)

    def __getitem__(self, _: int) -> tuple[Any, Any]:
        """Zeros that Keras makes a step of: whose records are due is looked up when it is taken."""
        return torch.zeros_like(self._x[:1]), torch.zeros_like(self._y[:1])

    def step(self, model: Any) -> None:
        """Clip, sum, add noise, divide by one number for all steps, and move the model."""
        due = self.batches[self.run.step]
        variables = model.trainable_variables
        sums = [torch.zeros_like(v.value) for v in variables]
        if len(due):
            device, rows = sums[0].device, torch.as_tensor(due)
            _sums(model, sums, self._x[rows].to(device), self._y[rows].to(device), self.run.clip)
        add_to(sums, self.run, records=due.tolist())
        with torch.no_grad():
            model.optimizer.apply([total / self._size for total in sums], variables)


def _sums(model: Any, sums: list[torch.Tensor], x: Any, y: Any, clip: float) -> None:
    """Sum the clipped gradients of a batch, each clipped over all variables, into ``sums``."""
    others = [v.value for v in model.non_trainable_variables]
    loss = keras.losses.get(model.loss)

    def loss_of(values: Any, one: Any, target: Any) -> Any:
        out, _ = model.stateless_call(list(values), others, one.unsqueeze(0), training=True)
        return keras.ops.sum(loss(target.unsqueeze(0), out))

    values = tuple(v.value.detach() for v in model.trainable_variables)
    gradient = torch.func.vmap(torch.func.grad(loss_of), (None, 0, 0), randomness="different")
    found = gradient(values, x, y)
    factor = clip_factors(found, clip)
    for total, each in zip(sums, found, strict=True):
        total += torch.tensordot(factor.to(each.dtype), each.detach(), dims=1)


def _check(model: Any) -> None:
    """Check that noise on the gradients of records is all that a step of this model needs."""
    if keras.backend.backend() != "torch":
        remedy = "Set KERAS_BACKEND=torch, or train on JAX by noisedesign.adapters.jax_privacy."
        got = keras.backend.backend()
        raise InputError("backend", expected="torch", got=got, remedy=remedy)
    kept = [
        v.path for layer in model.layers if layer.trainable for v in layer.non_trainable_variables
    ]
    if kept:
        expected = "layers that keep no averages and draw nothing"
        remedy = "Use GroupNormalization and no Dropout, or freeze the layer."
        raise InputError("model", expected=expected, got=kept[0], remedy=remedy)
    if model.losses:
        remedy = "Use weight_decay of the optimizer, which needs no data."
        raise InputError("model", expected="no regularisers", got="some", remedy=remedy)
    if not (model.compiled and model.loss and model.optimizer):
        raise InputError("model", expected="a compiled model", got="one without loss or optimizer")
    if model.optimizer.loss_scale_factor is not None:
        raise InputError("optimizer", expected="losses as they are", got="loss_scale_factor")
    if model.jit_compile:
        raise InputError("jit_compile", expected="False", got="True")
