"""Noise of modes: one mixture of the nodes' noise after another has a strategy of its own."""

from __future__ import annotations

import numpy as np

from noisedesign.base import memory
from noisedesign.base.checks import Array, InputError
from noisedesign.base.monitor import Monitor
from noisedesign.certify.certificate import Certificate
from noisedesign.certify.rigorous import Judged
from noisedesign.families.family import Answer, Arrays, Form, Model, not_convex
from noisedesign.families.kronecker.family import FactorFamily
from noisedesign.families.modal import bound as judging, rigorous
from noisedesign.families.space_time import SpaceTimeProgram
from noisedesign.forms import ModalStrategy, Noise
from noisedesign.problem.problem import SpaceTimeProblem

INSTEAD = 'Take joint = "kronecker", or "full" for few pairs of node and step.'


class Modal(FactorFamily[SpaceTimeProgram]):
    """Noise of modes; the search for M and the strategies may end in a local optimum."""

    name = "modal"

    def program(self, problem: SpaceTimeProblem) -> SpaceTimeProgram:
        if problem.max_variance is not None:
            expected = 'nothing for structure.joint = "modal"'
            raise InputError("limits.max_variance", expected=expected, got="a cap", remedy=INSTEAD)
        nodes = len(problem.mixing)
        memory.require(
            lambda steps: 8 * 10 * nodes * steps**2,  # arrays that a whole solve holds at once
            problem.participation.horizon,
            field="participation",
            of=f"steps of {nodes} nodes",
        )
        program = SpaceTimeProgram.of(problem)
        if program.workload.modes is None:
            key, expected, got = "mixing", "a symmetric W that is always the same", "another"
            if program.workload.symmetric:
                key, expected, got = "error", "the same weight for every node", "uneven weights"
            expected += ' for structure.joint = "modal", whose modes are the eigenvectors of W'
            raise InputError(key, expected=expected, got=got, remedy=INSTEAD)
        return program

    def solve(self, program: SpaceTimeProgram, *, monitor: Monitor) -> Answer:
        from noisedesign.families.modal import solver

        return solver.solve(program, monitor=monitor)

    def model(self, program: SpaceTimeProgram, form: Form) -> Model:
        raise not_convex("structure.joint", '"modal", a product of unknowns')

    def judge(
        self, program: SpaceTimeProgram, noise: Noise, proof: Arrays, *, bound: float
    ) -> Certificate:
        return judging.judge_modal(program, _form(noise), bound=bound)

    def rigorous_judge(self, program: SpaceTimeProgram, noise: Noise, proof: Arrays) -> Judged:
        return rigorous.judge(program, _form(noise))

    def _variances(self, noise: Noise) -> Array:
        form = _form(noise)
        of_modes = np.square(form.noisings).sum(axis=2)
        return np.asarray(of_modes.T @ np.square(form.modes.T) * np.square(form.scales.T))

    def independent(self, program: SpaceTimeProgram) -> Noise:
        steps = program.participation
        form = ModalStrategy.of_pair(
            np.eye(steps.horizon) / np.sqrt(steps.epochs), np.diag(1 / program.budget)
        )
        return Noise(steps=steps.horizon, nodes=form.nodes, strategy=form, full=True)

    def independent_error(self, problem: SpaceTimeProblem) -> float:
        return SpaceTimeProgram.of(problem).independent_objective


def _form(noise: Noise) -> ModalStrategy:
    """C by modes; InputError for noise of another form."""
    if not isinstance(noise.strategy, ModalStrategy):
        expected, got = "C by modes", "C in another form"
        raise InputError("design.strategy", expected=expected, got=got)
    return noise.strategy


FAMILY = Modal()
