"""What a run leaves on disk, read and written without torch."""

from imae.records.files import explained_writing as explained_writing
from imae.records.folder import RunFolder as RunFolder
from imae.records.measures import EpochDynamics as EpochDynamics
from imae.records.measures import RunLabels as RunLabels
