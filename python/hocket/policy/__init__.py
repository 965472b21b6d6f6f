"""Tracing of policies into programs: handlers run once per tensor signature and epoch, and their ops are recorded.

`policy` has the class that users extend, `context` the object that handlers receive, and `trace` makes the programs. No framework,
no executor, no I/O.
"""
