"""Members of an elastic job: who is one, by the coordinator's decisions and its journal, and each rank's side of it."""
