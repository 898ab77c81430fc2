"""Design the noise of private learning: graph in, certified noise out."""

from noisedesign._checks import InputError
from noisedesign.accounting import calibrate, delta_of, epsilon_of, mu_of
from noisedesign.baselines import baseline, baseline_names
from noisedesign.certificate import Certificate
from noisedesign.design import Design
from noisedesign.graph import build_graph, mixing_matrix
from noisedesign.io.design_file import load_design, save_design
from noisedesign.io.problem_file import load_problem
from noisedesign.participation import FixedEpoch
from noisedesign.problem import PrivacyTarget, SpaceProblem, TimeProblem
from noisedesign.solve import Solution, solve
from noisedesign.validation import validate
from noisedesign.verification import verify

__version__ = "0.1.0"

__all__ = [
    "Certificate",
    "Design",
    "FixedEpoch",
    "InputError",
    "PrivacyTarget",
    "Solution",
    "SpaceProblem",
    "TimeProblem",
    "baseline",
    "baseline_names",
    "build_graph",
    "calibrate",
    "delta_of",
    "epsilon_of",
    "load_design",
    "load_problem",
    "mixing_matrix",
    "mu_of",
    "save_design",
    "solve",
    "validate",
    "verify",
]
