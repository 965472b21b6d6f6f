"""`hocket bench all_reduce` and the other collectives: contenders take turns in the same processes, results are checked."""
