"""Training: a configuration in, a run folder out."""

from typing import TYPE_CHECKING

from imae._registry import lazy_exports

if TYPE_CHECKING:
    from imae.train.config import Config as Config
    from imae.train.config import build_config as build_config
    from imae.train.config import read_config_file as read_config_file
    from imae.train.config import with_settings as with_settings
    from imae.train.config import with_values as with_values
    from imae.train.launch import resume as resume
    from imae.train.launch import train as train
    from imae.train.launch import train_student as train_student
    from imae.train.measure import evaluate_retrieval as evaluate_retrieval
    from imae.train.measure import evaluate_robustness as evaluate_robustness
    from imae.train.processes import Stopped as Stopped
    from imae.train.run import Run as Run
else:
    __getattr__, __dir__ = lazy_exports(__name__)
