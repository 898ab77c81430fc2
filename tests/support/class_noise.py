"""A family that is not the package's own: nodes of a class share alike, and with nobody else.

On a class of m nodes R is a (I - J / m) + x J / m, two numbers a class. Its error is p x + q a with
p = 1^T H 1 / m and q = tr H - p of the class's block of H; the budget asks for

    (1 / x + (m - 1) / a) / m <= tau.

For any price v >= 0 of the budget the error is at least 2 sqrt(v / m) (sqrt p + sqrt((m - 1) q))
- v tau, since p x + v / (m x) >= 2 sqrt(p v / m). The best price is the optimum over tau, and gives
x and a in closed form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from noisedesign.base.checks import Array, InputError
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.certify.certificate import NOTHING, Certificate, ProvedBound
from noisedesign.certify.program import Program
from noisedesign.conic.data import Point
from noisedesign.conic.program import CONSTANT, Assembly
from noisedesign.families.family import Answer, ArraySpec, Form, Model, Modelled, SpatialFamily
from noisedesign.forms import Noise
from noisedesign.forms.structure import SpaceStructure
from noisedesign.problem.problem import SpaceProblem
from noisedesign.system.participation import single

HEADROOM = 1e-13
"""By which noise is louder than the budget asks, and the bound lower than proved: rounding."""


class Class(NamedTuple):
    """``nodes``, and what x and a cost; ``a`` is of the m - 1 directions besides the mean."""

    nodes: Array
    mean: float
    rest: float
    budget: float

    @property
    def others(self) -> int:
        return len(self.nodes) - 1


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassProgram(Program):
    classes: tuple[Class, ...]

    def covariance(self, x: Array, a: Array) -> Array:
        """R, of the numbers of every class; louder by as much as a budget is exceeded."""
        r = np.zeros_like(self.gram)
        for c, along, across in zip(self.classes, x, a, strict=True):
            m = len(c.nodes)
            used = (1 / along + (c.others / across if c.others else 0.0)) / m / c.budget
            mean = np.full((m, m), 1 / m)
            block = across * (np.eye(m) - mean) + along * mean
            r[np.ix_(c.nodes, c.nodes)] = block * used * (1 + HEADROOM)
        return r


class Classes(SpatialFamily, Modelled):
    name = "classes"
    formulations = ("prices",)
    proof: Mapping[str, ArraySpec] = {"class_prices": ArraySpec("v", "c")}

    def program_of_gram(
        self,
        gram: Array,
        *,
        mixing: Array,
        structure: SpaceStructure,
        budget: Array,
        cap: Array | None,
    ) -> ClassProgram:
        numbers, classes = np.array(structure.clusters), []
        if cap is not None:
            raise InputError("limits.max_variance", expected="no cap", got="one")
        for number in np.unique(numbers):
            nodes = np.flatnonzero(numbers == number)
            if np.ptp(budget[nodes]) > 0:
                raise InputError("budget.tau", expected="one in a class", got="several")
            block = gram[np.ix_(nodes, nodes)]
            mean = float(block.mean() * len(nodes))
            rest = float(np.trace(block) - mean) if len(nodes) > 1 else 0.0
            classes.append(Class(nodes, mean, rest, float(budget[nodes[0]])))
        alone = single(len(gram))
        return ClassProgram(
            gram=gram, participation=alone, budget=budget, axes="space", classes=tuple(classes)
        )

    def solve(self, program: ClassProgram, *, monitor: Monitor) -> Answer:
        for c in program.classes:
            if c.others and c.rest <= 1e-12 * c.mean:
                raise InputError("mixing", expected="errors that see all noise", got="a null one")
        prices = np.array([_root(c) ** 2 / len(c.nodes) / c.budget**2 for c in program.classes])
        x, a = _numbers(program, prices)
        noise = Noise.of_covariance(program.covariance(x, a))
        return Answer(
            stop=Stop.SOLVED, noises=[noise], proof={"class_prices": prices}, evaluations=1
        )

    def bound(self, program: ClassProgram, proof: Any, **how: Any) -> ProvedBound:
        prices = proof.get("class_prices")
        if prices is None or np.shape(prices) != (len(program.classes),):
            return NOTHING
        if not np.isfinite(prices).all():
            return NOTHING
        total = 0.0
        for c, v in zip(program.classes, np.maximum(prices, 0.0), strict=True):
            total += max(0.0, 2 * np.sqrt(v / len(c.nodes)) * _root(c) - v * c.budget)
        return ProvedBound(total * (1 - HEADROOM), HEADROOM)

    def judge(
        self, program: ClassProgram, noise: Noise, proof: Any, *, bound: float
    ) -> Certificate:
        r, worst = noise.covariance, np.inf
        if np.allclose(r, r.T, rtol=1e-12, atol=0) and np.linalg.eigvalsh(r)[0] > 0:
            worst = float((np.diagonal(np.linalg.inv(r)) / program.budget).max())
        return Certificate(
            objective=float(np.sum(program.gram * r)), lower_bound=bound, sensitivity_squared=worst
        )

    def departure(self, program: ClassProgram, noise: Noise, proof: Any) -> float:
        r, alike = noise.covariance, np.zeros_like(program.gram)
        for c in program.classes:
            block, m = r[np.ix_(c.nodes, c.nodes)], len(c.nodes)
            variance = np.trace(block) / m
            shared = (block.sum() - np.trace(block)) / (m * c.others) if c.others else 0.0
            alike[np.ix_(c.nodes, c.nodes)] = shared + (variance - shared) * np.eye(m)
        return float(np.abs(r - alike).max() / np.abs(r).max())

    def sizes(self, problem: SpaceProblem) -> dict[str, int]:
        return {"c": len(set(problem.structure.clusters or ()))}

    def model(self, program: ClassProgram, form: Form) -> Model:
        """min sum p x + q a with [[x, 1], [1, y]] >= 0, [[a, 1], [1, b]] >= 0 in every class, and
        m tau - y - (m - 1) b >= 0."""
        assembly, classes = Assembly(), program.classes
        wide = [c for c in classes if c.others]
        x, y = _pairs(assembly, "xy", [c.mean for c in classes], of="the mean of a class")
        a, b = _pairs(assembly, "ab", [c.rest for c in wide], of="its other directions")
        at, asked = np.arange(len(classes)), np.array([len(c.nodes) * c.budget for c in classes])
        others = np.array([c.others for c in wide], dtype=float)
        among = np.array([number for number, c in enumerate(classes) if c.others], dtype=np.intp)
        assembly.at_least_zero(
            len(classes), [(CONSTANT, at, at, asked), (y, at, at, -1.0), (b, among, among, -others)]
        )

        def read(point: Point) -> Answer:
            along, across = point.variables[x - 1], np.ones(len(classes))
            across[among] = point.variables[a - 1]
            prices = np.array([len(c.nodes) for c in classes]) * point.rows
            return Answer(
                stop=Stop.SOLVED,
                noises=_made(program, along, across),
                proof={"class_prices": prices},
            )

        name = form.formulation or self.formulations[0]
        return Model(conic=assembly.finished(name="", formulation=name, remarks=()), read=read)


def _root(c: Class) -> float:
    """sqrt p + sqrt((m - 1) q)."""
    return float(np.sqrt(c.mean) + np.sqrt(c.others * max(c.rest, 0.0)))


def _numbers(program: ClassProgram, prices: Array) -> tuple[Array, Array]:
    """x and a at the best prices; a = 1 where there is none."""
    x, a = [], []
    for c, v in zip(program.classes, prices, strict=True):
        m = len(c.nodes)
        x.append(np.sqrt(v / (m * c.mean)))
        a.append(np.sqrt(v * c.others / (m * c.rest)) if c.others else 1.0)
    return np.array(x), np.array(a)


def _pairs(assembly: Assembly, names: str, cost: list[float], *, of: str) -> list[Array]:
    """Variances at that cost, and what is at least their inverses."""
    found = [
        assembly.vector(names[0], len(cost), cost=np.array(cost), meaning=f"variances, {of}"),
        assembly.vector(names[1], len(cost), meaning=f"precisions, {of}"),
    ]
    for pair in zip(*found, strict=True):
        assembly.block(2, [(np.array(pair), [0, 1], [0, 1], 1.0), (CONSTANT, 1, 0, 1.0)])
    return found


def _made(program: ClassProgram, x: Array, a: Array) -> Iterator[Noise]:
    if min(x.min(), a.min()) > 0:
        yield Noise.of_covariance(program.covariance(x, a))


FAMILY = Classes()
