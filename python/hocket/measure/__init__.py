"""Measurements of the machines of a job, from ordinary sockets: what a cluster file is made of."""
