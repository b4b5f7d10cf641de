"""Networks that return features and logits, built by name from an explicit seed."""

from typing import TYPE_CHECKING

from imae._registry import lazy_exports

if TYPE_CHECKING:
    from imae.models.catalog import MODELS as MODELS
    from imae.models.network import CustomNetwork as CustomNetwork
    from imae.models.network import Network as Network
    from imae.models.network import build as build
    from imae.models.network import input_options as input_options
    from imae.models.weights import PUBLISHED_INPUTS as PUBLISHED_INPUTS
    from imae.models.weights import Mismatch as Mismatch
    from imae.models.weights import PublishedInput as PublishedInput
    from imae.models.weights import WeightsReport as WeightsReport
    from imae.models.weights import load_weights as load_weights
    from imae.models.weights import pretrained_weights as pretrained_weights
else:
    __getattr__, __dir__ = lazy_exports(__name__)
