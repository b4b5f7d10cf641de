"""Choosing T, the cap and other settings by a search, with or without clean labels."""

from typing import TYPE_CHECKING

from imae._registry import lazy_exports

if TYPE_CHECKING:
    from imae.tune.outcome import Outcome as Outcome
    from imae.tune.outcome import shrinkage as shrinkage
    from imae.tune.search import tune as tune
else:
    __getattr__, __dir__ = lazy_exports(__name__)
