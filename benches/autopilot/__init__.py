"""`python -m benches autopilot`: gains of a job that drives itself, their delay, and the cost if there is nothing to gain."""
