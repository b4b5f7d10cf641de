"""Losses as scalar mathematics: a value and a slope at the margin of the given label."""

from imae.curves.catalog import CURVES as CURVES
from imae.curves.catalog import __dir__ as __dir__
from imae.curves.catalog import __getattr__ as __getattr__  # the curves of the catalog
from imae.curves.catalog import parse_curve as parse_curve
from imae.curves.curve import Curve as Curve
from imae.curves.curve import Scale as Scale
from imae.curves.curve import Sum as Sum
from imae.curves.curve import Window as Window
from imae.curves.integrals import FromWeight as FromWeight
from imae.curves.integrals import imae_weight_variance as imae_weight_variance
from imae.curves.integrals import impact_ratio as impact_ratio
from imae.curves.integrals import label_sum_range as label_sum_range
from imae.curves.integrals import loss_supremum as loss_supremum
from imae.curves.integrals import mean_weight as mean_weight
from imae.curves.integrals import weight_variance as weight_variance
from imae.curves.reweighted import IMAE as IMAE
