"""Finds what this machine and installation can do: a file per question, each answered by trying. Loads no framework."""
