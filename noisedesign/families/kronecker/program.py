"""The program of Kronecker noise: the programs of both factors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.families.family import Sampled, family_at
from noisedesign.families.space_time import SpaceTimeProgram
from noisedesign.forms.structure import SpaceStructure, TimeStructure
from noisedesign.privacy.target import PrivacyTarget
from noisedesign.problem.default_cap import lazy_advice


@dataclass(frozen=True, kw_only=True, eq=False)
class KroneckerProgram(SpaceTimeProgram):
    """Noise of covariance (C^T C)^-1 x R; ``target`` and ``seed`` are of random participation."""

    mixing: Array
    time: TimeStructure
    space: SpaceStructure
    target: PrivacyTarget | None = None
    seed: int | None = None

    @property
    def time_family(self) -> Any:
        return family_at("time", self.time.family_kind)

    @property
    def space_family(self) -> Any:
        return family_at("space", self.space.kind)

    def in_time(self, gram: Array) -> Any:
        """The program of a structured C, for H_time(R) = ``gram``, shape (T, T)."""
        found = self.time_family.program_of_gram(
            gram, participation=self.participation, structure=self.time, target=self.target
        )
        if isinstance(self.time_family, Sampled):
            return self.time_family.afresh(found, seed=self.seed)
        return found

    @property
    def of_time(self) -> Any:
        """The program of a structured C, for an error that does not matter."""
        return self.in_time(np.eye(self.workload.horizon))

    def in_space(self, gram: Array) -> Any:
        """The program of a structured R, for H_space(S) = ``gram``, shape (n, n)."""
        with lazy_advice(lambda: self.workload.one_mixing is not None):
            return self.space_family.program_of_gram(
                gram, mixing=self.mixing, structure=self.space, budget=self.budget, cap=self.cap
            )
