"""Doctor that finds what this machine and installation can do: a file per question, answered by trying. Loads no framework."""
