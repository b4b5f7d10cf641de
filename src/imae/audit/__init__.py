"""Which labels of a data set are wrong, from one training run."""

from imae.audit.audit import audit as audit
from imae.audit.calibrate import planted_probability as planted_probability
from imae.audit.result import Audit as Audit
from imae.audit.scores import combined_ranks as combined_ranks
from imae.audit.scores import final_disbelief as final_disbelief
from imae.audit.scores import late_disbelief as late_disbelief
from imae.audit.scores import mean_disbelief as mean_disbelief
from imae.audit.scores import mean_negative_margin as mean_negative_margin
from imae.audit.scores import neighbour_disbelief as neighbour_disbelief
from imae.audit.scores import share_contradicted as share_contradicted
