"""Trace directory → one self-contained HTML page. One section, one question, one file; `page.py` puts them together."""

from hocket.report.page import build, numbers

__all__ = ["build", "numbers"]
