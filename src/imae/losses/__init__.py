"""Curves applied to logits, and losses that need the whole distribution."""

from imae.curves.classic import reverse_cross_entropy as reverse_cross_entropy
from imae.losses.auto import AutoT as AutoT
from imae.losses.functional import curve_loss as curve_loss
from imae.losses.functional import linear_curve_loss as linear_curve_loss
from imae.losses.general import BootstrapLoss as BootstrapLoss
from imae.losses.general import CorrectedLoss as CorrectedLoss
from imae.losses.general import LabelSmoothingLoss as LabelSmoothingLoss
from imae.losses.general import backward_correction as backward_correction
from imae.losses.general import bootstrap_loss as bootstrap_loss
from imae.losses.general import forward_correction as forward_correction
from imae.losses.general import label_smoothing_loss as label_smoothing_loss
from imae.losses.margin import BoundedLogits as BoundedLogits
from imae.losses.margin import CappedLogits as CappedLogits
from imae.losses.margin import bound_logits as bound_logits
from imae.losses.margin import cap_logits as cap_logits
from imae.losses.margin import margin as margin
from imae.losses.margin import margins as margins
from imae.losses.module import CurveLoss as CurveLoss
from imae.losses.module import DFTLoss as DFTLoss
from imae.losses.module import IMAELoss as IMAELoss
from imae.losses.module import __dir__ as __dir__
from imae.losses.module import __getattr__ as __getattr__  # a module for each curve
from imae.losses.module import weight_curve as weight_curve
from imae.losses.normalized import ActiveNegativeLoss as ActiveNegativeLoss
from imae.losses.normalized import AsymmetricMSELoss as AsymmetricMSELoss
from imae.losses.normalized import EpsSoftmaxLoss as EpsSoftmaxLoss
from imae.losses.normalized import NormalizedCELoss as NormalizedCELoss
from imae.losses.normalized import active_negative_loss as active_negative_loss
from imae.losses.normalized import asymmetric_mse as asymmetric_mse
from imae.losses.normalized import eps_softmax_loss as eps_softmax_loss
from imae.losses.normalized import normalized_cross_entropy as normalized_cross_entropy
