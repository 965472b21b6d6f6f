"""Answers questions about a trace's communication: one question per file; `analyse` asks all of them.

Reads files through `formats`.
"""
