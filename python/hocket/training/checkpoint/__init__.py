"""State that outlives a process: checkpoints, and the state that a joining rank gets from the others."""
