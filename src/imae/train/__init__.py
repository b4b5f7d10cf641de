"""Training: a configuration in, a run folder out."""

from imae.train.config import Config as Config
from imae.train.launch import resume as resume
from imae.train.launch import train as train
from imae.train.reading import build_config as build_config
from imae.train.reading import read_config_file as read_config_file
from imae.train.reading import with_settings as with_settings
from imae.train.run import Run as Run
from imae.train.signals import Stopped as Stopped
