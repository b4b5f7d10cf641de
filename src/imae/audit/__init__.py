"""Which labels of a data set are wrong, from one training run."""

from imae.audit.result import Audit as Audit
