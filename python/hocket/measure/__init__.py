"""Measures the network of a job that runs, by a quick look or by its own traffic."""
