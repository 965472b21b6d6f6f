"""Data-parallel training without a framework: a process in its job, buckets, sessions, epochs. `framework.py` is the seam.

It never loads PyTorch, JAX or TensorFlow: their adapters do, and implement `Framework` for it.
"""
