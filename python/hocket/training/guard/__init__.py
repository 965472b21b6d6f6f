"""Guards of training: divergence, workload, and convergence under a delayed schedule."""
