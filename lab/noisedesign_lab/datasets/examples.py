"""Records that models are trained on: features and a target each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError, describe

Places = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True, eq=False)
class Examples:
    """Records of a data set: features (N, p), targets (N,), and ``owners`` (N,), persons.
    Ratings have the numbers of user and film as features."""

    features: Array
    targets: Array
    owners: Places | None = None

    def __post_init__(self) -> None:
        features = _checks.matrix(self.features, field="features")
        shape = (len(features),)
        targets = _checks.array_of_shape(self.targets, field="targets", shape=shape)
        object.__setattr__(self, "features", features)
        object.__setattr__(self, "targets", targets)
        owners = self.owners
        if owners is not None and (owners.dtype.kind != "i" or owners.shape != shape):
            expected = f"integers of shape {shape}"
            raise InputError("owners", expected=expected, got=describe(owners))

    def __len__(self) -> int:
        """N."""
        return len(self.targets)

    def at(self, places: Places) -> Examples:
        """Return the records at ``places``, shape (k,)."""
        if not len(places):
            raise InputError("examples", expected="at least one example", got="none")
        owners = None if self.owners is None else self.owners[places]
        return Examples(features=self.features[places], targets=self.targets[places], owners=owners)

    @classmethod
    def joined(cls, parts: Sequence[Examples]) -> Examples:
        """Join the records of several data sets, all with owners or all without."""
        owners = [part.owners for part in parts if part.owners is not None]
        if owners and len(owners) != len(parts):
            got = f"{len(owners)} of {len(parts)} data sets with owners"
            raise InputError("owners", expected="those of all data sets, or none", got=got)
        return cls(
            features=np.concatenate([part.features for part in parts]),
            targets=np.concatenate([part.targets for part in parts]),
            owners=np.concatenate(owners) if owners else None,
        )
