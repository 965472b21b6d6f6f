"""Starts ranks and connects them: `run` starts processes, `rendezvous.join` makes them a job."""
