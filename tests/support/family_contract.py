"""What every family keeps to, asked of one problem whose optimum is known without the library."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.conic.solvers import conic_solver, through_clarabel
from noisedesign.design.design import Design
from noisedesign.design.solve import Solution, solve
from noisedesign.families.family import ANY, Arrays, Family, Form, Modelled, Seeded, family_of
from noisedesign.files.design_file import load_design, save_design
from noisedesign.problem.problem import Problem
from noisedesign.tasks.verify import verify

GAP = 1e-8
"""Asked for: far below what a bound would have to be off by to be noticed."""
KNOWN = 2e-8
"""To which optima are known, relative, those of conic models included."""
REACHED = 1e-7
"""Of the optimum, which bounds reach: one that is a millionth too high is above it."""
FALSE = 1e-6
"""By which what is falsified is off, relative."""
MODELLED = 1e-6
"""To which a conic solver finds the optimum of a model."""


@dataclass(frozen=True, eq=False)
class Kept:
    """A problem, its optimum, and the optimum that the lower bound is about; ``tight`` bounds reach
    it, and noise is above its optimum by no more than ``excess``, relative."""

    problem: Problem
    optimum: float
    bounded: float
    tight: bool = True
    excess: float = 0.0

    @cached_property
    def family(self) -> Family:
        return family_of(self.problem)

    @property
    def formulations(self) -> tuple[str, ...]:
        return self.family.formulations if isinstance(self.family, Modelled) else ()

    @cached_property
    def program(self) -> Any:
        return self.family.program(self.problem)

    @cached_property
    def solution(self) -> Solution:
        return solve(self.problem, gap=GAP)

    @property
    def design(self) -> Design:
        assert self.solution.design is not None, self.solution.remedy
        return self.solution.design

    # --- what is kept -------------------------------------------------------------------------

    def noise_is_as_good_as_any(self) -> None:
        assert self.design.certificate.feasible
        found = self.design.objective
        assert found == pytest.approx(self.optimum, rel=self.excess + GAP + KNOWN)
        assert found >= self.optimum * (1 - KNOWN)

    def bound_is_none_too_high_and_reaches_the_optimum(self) -> None:
        certificate = self.design.certificate
        assert certificate.lower_bound <= certificate.objective
        assert certificate.lower_bound <= self.bounded * (1 + KNOWN)
        if self.tight:
            assert certificate.lower_bound >= self.bounded * (1 - REACHED)

    def bound_over_more_noise_is_no_higher(self) -> None:
        unrestricted = self.design.certificate.unrestricted_lower_bound
        relaxed = self.family.relaxed(self.problem)
        if relaxed is None:
            assert unrestricted in (None, self.design.lower_bound)
            return
        assert unrestricted is not None
        assert unrestricted <= self.design.lower_bound * (1 + KNOWN)
        assert unrestricted <= solve(relaxed, gap=GAP).design.objective
        assert self.family is not family_of(relaxed) or self.family.relaxed(relaxed) is None

    def own_design_is_accepted(self, folder: Path) -> None:
        assert verify(self.solution).ok
        stored = load_design(save_design(self.design, folder / "design.npz"))
        assert verify(stored).ok
        assert verify(stored, problem=self.problem).ok

    def arrays_go_to_a_file_and_back(self, folder: Path) -> None:
        design = self.design
        again = load_design(save_design(design, folder / "design.npz")).design
        for before, after in (
            (design.noise.arrays(), again.noise.arrays()),
            (design.proof, again.proof),
            (design.relaxed_proof, again.relaxed_proof),
        ):
            assert set(after) == set(before)
            for name, array in before.items():
                np.testing.assert_array_equal(after[name], array)
        assert again.certificate == design.certificate

    def proof_is_what_it_says(self) -> None:
        """Every array is one that the family names, of the shape it says."""
        sizes = self.family.sizes(self.problem)
        for name, array in self.design.proof.items():
            axes = self.family.proof[name].axes
            if axes != ANY:
                assert array.shape == tuple(sizes[axis] for axis in axes)

    def quieter_noise_is_refused(self) -> None:
        quiet = self.design.noise.scaled(1 - FALSE)
        judged = self.judged(quiet)
        assert not judged.feasible
        self.refused(noise=quiet)
        self.refused(noise=quiet, certificate=judged)

    def noise_of_another_structure_is_refused(self) -> None:
        relaxed = self.family.relaxed(self.problem)
        if relaxed is None:
            assert self.family.departure(self.program, self.design.noise, self.design.proof) == 0
            return
        better = solve(relaxed, gap=GAP).design
        assert better is not None
        if better.objective >= self.optimum * (1 - FALSE):
            return  # the structure costs nothing
        self.refused(noise=better.noise)
        found = self.family.departure(self.program, better.noise, self.design.proof)
        assert found > FALSE

    def raised_bounds_are_refused(self) -> None:
        certificate = self.design.certificate
        self.refused(
            certificate=replace(certificate, lower_bound=certificate.lower_bound * (1 + FALSE))
        )
        if (wide := certificate.unrestricted_lower_bound) is not None:
            raised = replace(certificate, unrestricted_lower_bound=wide * (1 + FALSE))
            self.refused(certificate=raised)
        if self.design.relaxed_proof:
            self.refused(relaxed_proof={})

    def no_multipliers_prove_too_much(self, other: Problem | None) -> None:
        """Those of another problem, and anything else: the bound is what they do prove."""
        proofs = list(falsified(self.design.proof))
        own = self.family.convex or not self.design.relaxed_proof
        if other is not None:
            proofs.append(solve(other, gap=GAP).design.proof)
        for proof in proofs:
            try:
                found = self.bound(proof)
            except InputError:
                continue
            assert 0 <= found <= self.bounded * (1 + KNOWN)
            if found < self.design.lower_bound * (1 - FALSE) and own:
                self.refused(proof=proof)

    def model_has_the_same_optimum(self) -> None:
        """In the units of the problem, whichever formulations hold it there."""
        solved = 0
        for formulation in (None, *self.formulations):
            try:
                model = self.family.model(self.program, Form(formulation))
            except InputError:
                continue
            tight = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
            point = through_clarabel(model.conic)(tight).point
            assert point is not None
            value = float(model.conic.cost @ point.variables)
            assert value == pytest.approx(self.optimum, rel=MODELLED)
            solved += 1
        assert solved > 0 or not self.family.convex

    def conic_solver_finds_the_same(self) -> None:
        """Its answer to every formulation, judged as every other."""
        assert self.formulations or not self.family.convex
        for formulation in self.formulations:
            assert isinstance(self.family, Modelled)
            if self.family.unable(self.program, formulation) or conic_solver("clarabel").lacks(
                formulation
            ):
                continue
            found = solve(self.problem, backend="clarabel", formulation=formulation, gap=MODELLED)
            assert found.certificate is not None, found.remedy
            assert found.certificate.feasible
            assert found.certificate.objective == pytest.approx(self.optimum, rel=2 * MODELLED)
            assert found.certificate.lower_bound <= self.bounded * (1 + KNOWN)
            assert verify(found).ok

    def independent_noise_is_feasible(self) -> None:
        noise = self.family.independent(self.program)
        parts: Arrays = {}
        if noise.axes == "space" and isinstance(self.family, Seeded):
            parts = self.family.parts(self.program, np.diagonal(noise.covariance))
        judged = self.family.judge(self.program, noise, parts, bound=0.0)
        assert judged.feasible
        if self.family.departure(self.program, noise, parts) == 0:  # or its structure forbids it
            assert judged.objective >= self.optimum * (1 - KNOWN)
        if judged.floor_ratio is None:  # a floor may ask for more than the budgets do
            assert judged.objective == pytest.approx(self.design.ldp_objective, rel=1e-12)
        assert self.design.ldp_objective == self.family.independent_error(self.problem)

    # --- helpers --------------------------------------------------------------------------------

    def judged(self, noise: Any) -> Any:
        return self.family.judge(self.program, noise, {}, bound=0.0)

    def bound(self, proof: Arrays) -> float:
        return self.family.bound(self.program, proof, noise=self.design.noise).value

    def refused(self, **falsified: Any) -> None:
        assert not verify(replace(self.design, **falsified)).ok


def falsified(proof: Arrays) -> Iterator[Arrays]:
    """A proof with one array after another changed, and all of them together."""
    rng = np.random.default_rng(3)

    def noisy(array: Any) -> Any:
        return array * rng.lognormal(sigma=0.3, size=array.shape)

    changes = (
        noisy,
        np.zeros_like,
        np.negative,
        lambda array: array * 1e3,
        lambda array: array + rng.normal(size=array.shape),
    )
    for change in changes:
        for name in proof:
            yield {**proof, name: change(proof[name])}
        yield {name: change(array) for name, array in proof.items()}
    for name in proof:
        yield {other: array for other, array in proof.items() if other != name}
    yield {}


def assert_kept(kept: Kept, *, other: Problem | None, folder: Path) -> None:
    """All of it, of one problem."""
    kept.noise_is_as_good_as_any()
    kept.bound_is_none_too_high_and_reaches_the_optimum()
    kept.bound_over_more_noise_is_no_higher()
    kept.own_design_is_accepted(folder)
    kept.arrays_go_to_a_file_and_back(folder)
    kept.proof_is_what_it_says()
    kept.quieter_noise_is_refused()
    kept.noise_of_another_structure_is_refused()
    kept.raised_bounds_are_refused()
    kept.no_multipliers_prove_too_much(other)
    kept.model_has_the_same_optimum()
    kept.conic_solver_finds_the_same()
    kept.independent_noise_is_feasible()
