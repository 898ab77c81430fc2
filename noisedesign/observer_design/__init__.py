"""Noise designed against chosen observers only: less of it than protection from everybody takes."""

from noisedesign.observer_design.certificate import ObserverProgram, ObserverWitness, lower_bound
from noisedesign.observer_design.problem import ObserverProblem
from noisedesign.observer_design.search import ObserverDesign, design_against, judge

__all__ = [
    "ObserverDesign",
    "ObserverProblem",
    "ObserverProgram",
    "ObserverWitness",
    "design_against",
    "judge",
    "lower_bound",
]
