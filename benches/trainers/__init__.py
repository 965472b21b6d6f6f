"""Accelerate, transformers' Trainer and Lightning with their DDP, and with `hk.distribute`: `python -m benches trainers`."""
