"""What watches training: divergence, workload, and whether a delayed schedule still converges."""
