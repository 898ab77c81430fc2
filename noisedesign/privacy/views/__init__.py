"""Who sees what: algorithms, trust models, and what one learns from the other."""

from noisedesign.privacy.views.algorithms import Algorithm as Algorithm
from noisedesign.privacy.views.algorithms import antipgd as antipgd
from noisedesign.privacy.views.algorithms import decor as decor
from noisedesign.privacy.views.algorithms import dp_d_sgd as dp_d_sgd
from noisedesign.privacy.views.algorithms import mf_d_sgd as mf_d_sgd
from noisedesign.privacy.views.algorithms import muffliato as muffliato
from noisedesign.privacy.views.algorithms import space_time as space_time
from noisedesign.privacy.views.algorithms import whisper as whisper
from noisedesign.privacy.views.algorithms import zip_dl as zip_dl
from noisedesign.privacy.views.gram import grams as grams
from noisedesign.privacy.views.mechanism import LinearMechanism as LinearMechanism
from noisedesign.privacy.views.mechanism import check_kinds as check_kinds
from noisedesign.privacy.views.mechanism import view as view
from noisedesign.privacy.views.noise import Gram as Gram
from noisedesign.privacy.views.noise import VictimGram as VictimGram
from noisedesign.privacy.views.observers import MODELS as MODELS
from noisedesign.privacy.views.observers import OWN_NOISE as OWN_NOISE
from noisedesign.privacy.views.observers import Observer as Observer
from noisedesign.privacy.views.observers import insider as insider
from noisedesign.privacy.views.observers import ldp as ldp
from noisedesign.privacy.views.observers import pndp as pndp
from noisedesign.privacy.views.observers import secldp as secldp
from noisedesign.privacy.views.observers import secure_sum as secure_sum
from noisedesign.privacy.views.observers import shared_seed as shared_seed
from noisedesign.privacy.views.observers import tap as tap
