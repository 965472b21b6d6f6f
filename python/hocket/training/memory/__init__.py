"""Gradients in memory: a framework's gradients, their buckets and arenas, rows, shards, and replicas that are compared."""
