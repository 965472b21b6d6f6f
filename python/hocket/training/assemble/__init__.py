"""Assembly of a job for a script: the choice of a plan, the session that fits it, newcomers of elastic jobs."""
