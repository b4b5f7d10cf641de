"""Images, tables and text with labels: loading, splitting and batches."""

from typing import TYPE_CHECKING

from imae._registry import lazy_exports

if TYPE_CHECKING:
    from imae.data.batches import Batch as Batch
    from imae.data.batches import Batches as Batches
    from imae.data.extract import extract_features as extract_features
    from imae.data.features import HashedText as HashedText
    from imae.data.features import Table as Table
    from imae.data.features import hash_text as hash_text
    from imae.data.image_files import ImageFiles as ImageFiles
    from imae.data.images import ArrayImages as ArrayImages
    from imae.data.loading import Unlabelled as Unlabelled
    from imae.data.loading import describe as describe
    from imae.data.loading import load as load
    from imae.data.loading import load_unlabelled as load_unlabelled
    from imae.data.split import Data as Data
    from imae.data.split import Inputs as Inputs
    from imae.data.split import Skipped as Skipped
    from imae.data.split import Split as Split
    from imae.data.split import hold_out as hold_out
    from imae.data.split import sample_rows as sample_rows
    from imae.data.torch_dataset import from_arrays as from_arrays
    from imae.data.torch_dataset import from_dataset as from_dataset
else:
    __getattr__, __dir__ = lazy_exports(__name__)
