"""Experiments of many runs: comparisons, and the tables and figures of the paper."""

from imae.recipes.grid import compare as compare
from imae.recipes.grid import split_losses as split_losses
from imae.recipes.grid import trainable_losses as trainable_losses
from imae.recipes.protocols import BUDGETS as BUDGETS
from imae.recipes.recipe import RECIPES as RECIPES
from imae.recipes.reproduce import Reproduction as Reproduction
from imae.recipes.reproduce import plan_jobs as plan_jobs
from imae.recipes.reproduce import rebuild as rebuild
from imae.recipes.reproduce import reproduce as reproduce
