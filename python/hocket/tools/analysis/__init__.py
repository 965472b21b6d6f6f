"""Analysis of a trace's communication: one question per file; `analyse` asks all of them.

Files are read through `formats`.
"""
