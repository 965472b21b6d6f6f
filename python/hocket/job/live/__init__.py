"""Live look at a job: what its ranks report while they train, and what observers make of that."""
