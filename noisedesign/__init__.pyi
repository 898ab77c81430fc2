# Public names, by the modules that they come from: what __init__.py loads when they are asked for.

from types import ModuleType

from noisedesign import (
    graphs as graphs,
    observers as observers,
    participation as participation,
    privacy as privacy,
    results as results,
)
from noisedesign.base.checks import InputError as InputError
from noisedesign.design.design import Design as Design
from noisedesign.design.solve import Solution as Solution, solve as solve
from noisedesign.design.tune import tune_learning_rate as tune_learning_rate
from noisedesign.design.unbounded import UnboundedDesign as UnboundedDesign
from noisedesign.files.design_file import save as save
from noisedesign.files.problem_set import shipped_problems as shipped_problems
from noisedesign.forms.structure import (
    SpaceStructure as SpaceStructure,
    TimeStructure as TimeStructure,
)
from noisedesign.mechanisms.baselines import baseline as baseline, baseline_names as baseline_names
from noisedesign.noise.source import noise as _noise
from noisedesign.pages.plot import plot as plot
from noisedesign.pages.write import report as report
from noisedesign.privacy.target import PrivacyTarget as PrivacyTarget
from noisedesign.problem.calibration import calibrate as calibrate
from noisedesign.problem.problem import (
    SpaceProblem as SpaceProblem,
    SpaceTimeProblem as SpaceTimeProblem,
    TimeProblem as TimeProblem,
)
from noisedesign.problem.unbounded import UnboundedProblem as UnboundedProblem
from noisedesign.surveys.any_file import load as load
from noisedesign.surveys.compare import compare as compare
from noisedesign.surveys.recommend import recommend as recommend
from noisedesign.surveys.sweep import sweep as sweep
from noisedesign.system.graph import build_graph as build_graph, mixing_matrix as mixing_matrix
from noisedesign.system.workloads import ErrorMeasure as ErrorMeasure, ErrorMixture as ErrorMixture
from noisedesign.tasks.account.ask import account as account
from noisedesign.tasks.curvature import curvature_range as curvature_range
from noisedesign.tasks.evaluate import evaluate as evaluate
from noisedesign.tasks.export import export as export
from noisedesign.tasks.simulate import simulate as simulate
from noisedesign.tasks.verify import verify as verify

class _Noise(ModuleType):
    """The package, which is called as its function of the same name."""

    __call__ = staticmethod(_noise)

noise: _Noise
__version__: str
