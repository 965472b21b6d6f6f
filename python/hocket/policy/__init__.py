"""Turns policies into programs: handlers run once per tensor signature and epoch, and their ops are recorded.

`policy` is the class that users extend, `context` is what handlers receive, and `trace` makes the programs. No
framework, no executor, no I/O.
"""
