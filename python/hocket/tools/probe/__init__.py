"""Measures the machines of a job through ordinary sockets; the results make up a cluster file."""
