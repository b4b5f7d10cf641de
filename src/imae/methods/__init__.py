"""What a training run optimises: losses, and the state that they need."""

from imae.methods.catalog import METHODS as METHODS
from imae.methods.catalog import __dir__ as __dir__
from imae.methods.catalog import __getattr__ as __getattr__  # the methods of the catalog
from imae.methods.method import CurveMethod as CurveMethod
from imae.methods.method import Facts as Facts
from imae.methods.method import LossMethod as LossMethod
from imae.methods.method import Method as Method
from imae.methods.method import Restart as Restart
from imae.methods.method import Rows as Rows
from imae.methods.method import TrustedRows as TrustedRows
