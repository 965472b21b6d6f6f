"""State that outlives a process: checkpoints, and what a rank that comes gets from the others."""
