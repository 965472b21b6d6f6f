"""Collectives by other libraries instead of the native wire, for policies that ask for one: Gloo, NCCL, MPI.

Communicators are made once per group and kept; one thread per rank runs all of a job's, in one order on all ranks.
"""
