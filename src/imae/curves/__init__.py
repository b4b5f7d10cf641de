"""Losses as scalar mathematics: a value and a slope at the margin of the given label."""

from imae.curves.catalog import CURVES as CURVES
from imae.curves.catalog import __dir__ as __dir__
from imae.curves.catalog import __getattr__ as __getattr__  # the curves of the catalog
from imae.curves.catalog import imae_weight_variance as imae_weight_variance
from imae.curves.catalog import impact_ratio as impact_ratio
from imae.curves.catalog import label_sum_range as label_sum_range
from imae.curves.catalog import loss_supremum as loss_supremum
from imae.curves.catalog import mean_weight as mean_weight
from imae.curves.catalog import parse_curve as parse_curve
from imae.curves.catalog import weight_variance as weight_variance
from imae.curves.curve import Curve as Curve
from imae.curves.curve import Scale as Scale
from imae.curves.curve import Sum as Sum
from imae.curves.curve import Window as Window
from imae.curves.reweighted import IMAE as IMAE
from imae.curves.reweighted import FromWeight as FromWeight
