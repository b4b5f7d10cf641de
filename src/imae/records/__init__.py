"""What a run leaves on disk, read and written without torch."""

from imae.records.folder import RunFolder as RunFolder
from imae.records.rows import EpochDynamics as EpochDynamics
from imae.records.rows import RunLabels as RunLabels
from imae.records.writing import explained_writing as explained_writing
