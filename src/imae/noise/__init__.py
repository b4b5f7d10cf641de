"""Label noise: generated from a seed, stored in files, and estimated where it is unknown."""

from imae.noise.asymmetric import CIFAR10_MAPPING as CIFAR10_MAPPING
from imae.noise.asymmetric import CIFAR100_COARSE as CIFAR100_COARSE
from imae.noise.asymmetric import cifar10_asymmetric as cifar10_asymmetric
from imae.noise.asymmetric import cifar100_asymmetric as cifar100_asymmetric
from imae.noise.asymmetric import instance_dependent as instance_dependent
from imae.noise.asymmetric import pairs as pairs
from imae.noise.by_class import NoisyLabels as NoisyLabels
from imae.noise.by_class import from_transition as from_transition
from imae.noise.by_class import symmetric as symmetric
from imae.noise.by_class import uniform as uniform
from imae.noise.catalog import KINDS as KINDS
from imae.noise.catalog import NoiseSpec as NoiseSpec
from imae.noise.catalog import OpenSetImages as OpenSetImages
from imae.noise.catalog import apply as apply
from imae.noise.catalog import open_set as open_set
from imae.noise.catalog import parse as parse
from imae.noise.catalog import parse_mapping as parse_mapping
from imae.noise.estimate import RateEstimate as RateEstimate
from imae.noise.estimate import estimate_noise_rate as estimate_noise_rate
from imae.noise.estimate import estimate_transition as estimate_transition
from imae.noise.estimate import (
    estimate_transition_from_anchors as estimate_transition_from_anchors,
)
from imae.noise.manifest import Manifest as Manifest
from imae.noise.manifest import read_manifest as read_manifest
from imae.noise.manifest import write_manifest as write_manifest
