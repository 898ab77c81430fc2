# Names of nd.results, by the modules that they come from.

from noisedesign.certify.certificate import Certificate as Certificate
from noisedesign.design.tune import Tuned as Tuned
from noisedesign.files.checkpoint_file import CheckpointFile as CheckpointFile
from noisedesign.privacy.exposure import Exposure as Exposure
from noisedesign.problem.calibration import Calibration as Calibration
from noisedesign.surveys.recommend import Recommendation as Recommendation
from noisedesign.tasks.curvature import Curvature as Curvature
from noisedesign.tasks.dropout import DropOut as DropOut
from noisedesign.tasks.evaluate import Evaluation as Evaluation
from noisedesign.tasks.simulate import Simulation as Simulation
from noisedesign.tasks.verify import Verification as Verification
