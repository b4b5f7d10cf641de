"""Data sets by name: loading, fetching and verifying them."""

from typing import TYPE_CHECKING

from imae._registry import lazy_exports

if TYPE_CHECKING:
    from imae.data.sources.catalog import SETS as SETS
    from imae.data.sources.catalog import SOURCES as SOURCES
    from imae.data.sources.catalog import NamedSet as NamedSet
    from imae.data.sources.catalog import fetch as fetch
    from imae.data.sources.catalog import named_set as named_set
    from imae.data.sources.catalog import verify as verify
    from imae.data.sources.download import data_root as data_root
    from imae.data.sources.photo_sets import mars_tracklets as mars_tracklets
    from imae.data.tracklets import Tracklets as Tracklets
else:
    __getattr__, __dir__ = lazy_exports(__name__)
