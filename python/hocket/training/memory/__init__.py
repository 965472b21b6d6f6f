"""Gradients in memory: what a framework gives, buckets and arenas of them, rows, shards, and replicas that are compared."""
