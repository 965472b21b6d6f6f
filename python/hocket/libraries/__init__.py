"""Collectives executed by other libraries instead of the native wire, for policies that name one: Gloo, NCCL, MPI.

Communicators are created once per group and kept; one thread per rank runs all collectives of a job, in the same order
on all ranks.
"""
