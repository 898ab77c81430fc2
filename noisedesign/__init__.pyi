# Public names, by the modules that they come from: what __init__.py loads when they are asked for.

from noisedesign.base.checks import InputError as InputError
from noisedesign.certify.certificate import Certificate as Certificate
from noisedesign.design.buffer_search import solve_unbounded as solve_unbounded
from noisedesign.design.design import Design as Design
from noisedesign.design.least_noise import (
    LeastNoiseMixing as LeastNoiseMixing,
    least_noise_mixing as least_noise_mixing,
)
from noisedesign.design.prefix import privacy_after as privacy_after
from noisedesign.design.solve import Solution as Solution, solve as solve
from noisedesign.design.tune import Tuned as Tuned, tune_learning_rate as tune_learning_rate
from noisedesign.design.unbounded import UnboundedDesign as UnboundedDesign
from noisedesign.files.checkpoint_file import CheckpointFile as CheckpointFile
from noisedesign.files.design_file import load_design as load_design, save_design as save_design
from noisedesign.files.problem_file import load_problem as load_problem
from noisedesign.files.problem_set import shipped_problems as shipped_problems
from noisedesign.forms.structure import (
    SpaceStructure as SpaceStructure,
    TimeStructure as TimeStructure,
)
from noisedesign.mechanisms.baselines import baseline as baseline, baseline_names as baseline_names
from noisedesign.pages.plot import plot as plot
from noisedesign.pages.write import report as report
from noisedesign.privacy.accounting import (
    delta_of as delta_of,
    epsilon_of as epsilon_of,
    mu_of as mu_of,
    noise_stddev_for as noise_stddev_for,
    renyi_of as renyi_of,
)
from noisedesign.privacy.exposure import Exposure as Exposure, account as account
from noisedesign.privacy.ledger import (
    Ledger as Ledger,
    dp_event as dp_event,
    neighboring_relation as neighboring_relation,
)
from noisedesign.privacy.target import PrivacyTarget as PrivacyTarget
from noisedesign.privacy.views import (
    Observer as Observer,
    central as central,
    coalitions as coalitions,
    insider as insider,
    ldp as ldp,
    pndp as pndp,
    secldp as secldp,
    secure_sum as secure_sum,
    shared_seed as shared_seed,
    tap as tap,
)
from noisedesign.problem.calibration import Calibration as Calibration, calibrate as calibrate
from noisedesign.problem.problem import (
    SpaceProblem as SpaceProblem,
    SpaceTimeProblem as SpaceTimeProblem,
    TimeProblem as TimeProblem,
)
from noisedesign.problem.unbounded import UnboundedProblem as UnboundedProblem
from noisedesign.surveys.compare import compare as compare
from noisedesign.surveys.recommend import Recommendation as Recommendation, recommend as recommend
from noisedesign.surveys.sweep import sweep as sweep
from noisedesign.surveys.sweep_file import load_sweep as load_sweep
from noisedesign.system.graph import build_graph as build_graph, mixing_matrix as mixing_matrix
from noisedesign.system.participation import (
    BallsInBins as BallsInBins,
    BMinSepSampling as BMinSepSampling,
    CyclicPoisson as CyclicPoisson,
    FixedEpoch as FixedEpoch,
    MinSeparation as MinSeparation,
    Patterns as Patterns,
    RandomAllocation as RandomAllocation,
    TruncatedPoisson as TruncatedPoisson,
    every_step as every_step,
    fixed_epoch as fixed_epoch,
    single as single,
)
from noisedesign.system.random_mixing import (
    EdgeDropout as EdgeDropout,
    NodeDropout as NodeDropout,
    RandomMatchings as RandomMatchings,
    RandomMixing as RandomMixing,
    maximal_matchings as maximal_matchings,
    pairwise_gossip as pairwise_gossip,
)
from noisedesign.system.rules import sparse_mixing_matrix as sparse_mixing_matrix
from noisedesign.system.workloads import ErrorMeasure as ErrorMeasure, ErrorMixture as ErrorMixture
from noisedesign.tasks.account.request import load_account as load_account
from noisedesign.tasks.curvature import Curvature as Curvature, curvature_range as curvature_range
from noisedesign.tasks.dropout import (
    DropOut as DropOut,
    drop_out as drop_out,
    every_drop_out as every_drop_out,
    mu_to_holders as mu_to_holders,
)
from noisedesign.tasks.evaluate import Evaluation as Evaluation, evaluate as evaluate
from noisedesign.tasks.export import export as export
from noisedesign.tasks.simulate import Simulation as Simulation, simulate as simulate
from noisedesign.tasks.verify import Verification as Verification, verify as verify

__version__: str
