"""Buckets of one model on different routes, on emulated racks: the same model as DDP's, and the bytes of each pair of ranks."""
