"""Trace directory → one self-contained HTML page. One question, one section, one file; `page.py` joins."""

from hocket.report.page import build, numbers

__all__ = ["build", "numbers"]
