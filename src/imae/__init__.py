"""Train on labels you cannot trust, and find the ones that are wrong."""

from typing import TYPE_CHECKING

from imae._registry import lazy_exports

if TYPE_CHECKING:
    from imae import curves as curves
    from imae import data as data
    from imae import losses as losses
    from imae import metrics as metrics
    from imae import models as models
    from imae import noise as noise
    from imae.errors import ArgumentError as ArgumentError
    from imae.errors import DataError as DataError
    from imae.errors import ImaeError as ImaeError
    from imae.errors import MissingExtraError as MissingExtraError
    from imae.losses import BootstrapLoss as BootstrapLoss
    from imae.losses import CappedLogits as CappedLogits
    from imae.losses import CorrectedLoss as CorrectedLoss
    from imae.losses import CurveLoss as CurveLoss
    from imae.losses import DFTLoss as DFTLoss
    from imae.losses import IMAELoss as IMAELoss
    from imae.losses import LabelSmoothingLoss as LabelSmoothingLoss
    from imae.losses import NormalizedCELoss as NormalizedCELoss
    from imae.losses import __getattr__ as __getattr__  # a module for each curve
    from imae.losses import bound_logits as bound_logits
    from imae.losses import cap_logits as cap_logits
    from imae.losses import curve_loss as curve_loss
    from imae.losses import linear_curve_loss as linear_curve_loss
    from imae.losses import margin as margin
    from imae.losses import weight_curve as weight_curve
else:
    __getattr__, __dir__ = lazy_exports(__name__)
