"""Report of a trace directory as one self-contained HTML page: one question, one section, one file; `page.py` joins them.

`serve` has the page of a job that runs.
"""

from hocket.tools.report.page import build, numbers
from hocket.tools.report.serve import serve

__all__ = ["build", "numbers", "serve"]
