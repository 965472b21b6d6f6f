"""Report of a trace directory as one self-contained HTML page: one question, one section, one file; `page.py` joins them."""

from hocket.tools.report.page import build, numbers

__all__ = ["build", "numbers"]
