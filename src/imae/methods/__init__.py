"""What a training run optimises: losses, and the state that they need."""

from imae.methods.active_bias import ActiveBias as ActiveBias
from imae.methods.catalog import METHODS as METHODS
from imae.methods.co_teaching import CoTeaching as CoTeaching
from imae.methods.correction import BackwardCorrection as BackwardCorrection
from imae.methods.correction import ForwardCorrection as ForwardCorrection
from imae.methods.d2l import D2L as D2L
from imae.methods.elr import ELR as ELR
from imae.methods.joint_optim import JointOptim as JointOptim
from imae.methods.l2rw import LearningToReweight as LearningToReweight
from imae.methods.loss_method import CurveMethod as CurveMethod
from imae.methods.loss_method import LossMethod as LossMethod
from imae.methods.masking import Masking as Masking
from imae.methods.method import Facts as Facts
from imae.methods.method import Method as Method
from imae.methods.method import Restart as Restart
from imae.methods.method import Rows as Rows
from imae.methods.method import TrustedRows as TrustedRows
from imae.methods.pruning import Trimmed as Trimmed
from imae.methods.pruning import TruncatedGCEMethod as TruncatedGCEMethod
from imae.methods.s_adaptation import SAdaptation as SAdaptation
