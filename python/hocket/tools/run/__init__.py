"""What starts the ranks of a job: checks before the start, and functions as ranks."""
