"""Policies become programs: handlers are run once per tensor signature and epoch, for every rank, and what they do is recorded.

`policy` is what users write, `context` what handlers are given, `trace` makes the programs. No framework, no executor, no I/O.
"""
