"""Tables, figures and pages, made from run folders and plain numbers without torch."""

from imae.report.comparison import Table as Table
from imae.report.comparison import table as table
from imae.report.figures import save_figures as save_figures
from imae.report.formats import as_csv as as_csv
from imae.report.formats import as_markdown as as_markdown
from imae.report.formats import as_text as as_text
from imae.report.formats import save_table as save_table
from imae.report.page import write_report as write_report
from imae.report.read import RunRecord as RunRecord
from imae.report.read import find_runs as find_runs
from imae.report.read import read_run as read_run
from imae.report.read import read_runs as read_runs
