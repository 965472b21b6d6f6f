"""Doctor of this machine and installation: a file per question, answered by trying. Loads no framework."""
