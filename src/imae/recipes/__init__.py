"""Sets of runs that answer one question together."""

from imae.recipes.compare import compare as compare
from imae.recipes.compare import split_losses as split_losses
