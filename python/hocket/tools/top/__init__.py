"""Terminal view of a running job."""
