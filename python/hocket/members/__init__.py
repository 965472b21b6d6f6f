"""Members of an elastic job: the coordinator's decisions and its journal, and each rank's side of them."""
