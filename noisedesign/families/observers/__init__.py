"""Noise designed against chosen observers only: less of it than protection from everybody takes."""

from noisedesign.families.observers.bound import ObserverProgram, ObserverWitness, lower_bound
from noisedesign.families.observers.problem import ObserverProblem
from noisedesign.families.observers.search import ObserverDesign, design_against, judge

__all__ = [
    "ObserverDesign",
    "ObserverProblem",
    "ObserverProgram",
    "ObserverWitness",
    "design_against",
    "judge",
    "lower_bound",
]
