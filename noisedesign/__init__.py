"""Design the noise of private learning: graph in, certified noise out."""

from noisedesign._checks import InputError
from noisedesign.accounting import calibrate, delta_of, epsilon_of, mu_of, renyi_of, sigma_for
from noisedesign.baselines import baseline, baseline_names
from noisedesign.certificate import Certificate
from noisedesign.design import Design
from noisedesign.exposure import Exposure, account
from noisedesign.graph import build_graph, mixing_matrix
from noisedesign.io.account_file import load_account
from noisedesign.io.checkpoint_file import CheckpointFile
from noisedesign.io.design_file import load_design, save_design
from noisedesign.io.problem_file import load_problem
from noisedesign.participation import FixedEpoch, MinSeparation, Patterns, every_step, single
from noisedesign.privacy_target import PrivacyTarget
from noisedesign.problem import SpaceProblem, SpaceTimeProblem, TimeProblem
from noisedesign.solve import Solution, solve
from noisedesign.validation import validate
from noisedesign.verification import verify

__version__ = "0.1.0"

__all__ = [
    "Certificate",
    "CheckpointFile",
    "Design",
    "Exposure",
    "FixedEpoch",
    "InputError",
    "MinSeparation",
    "Patterns",
    "PrivacyTarget",
    "Solution",
    "SpaceProblem",
    "SpaceTimeProblem",
    "TimeProblem",
    "account",
    "baseline",
    "baseline_names",
    "build_graph",
    "calibrate",
    "delta_of",
    "epsilon_of",
    "every_step",
    "load_account",
    "load_design",
    "load_problem",
    "mixing_matrix",
    "mu_of",
    "renyi_of",
    "save_design",
    "sigma_for",
    "single",
    "solve",
    "validate",
    "verify",
]
