"""`python -m benches autopilot`: what a job that drives itself gains, how soon, and what it costs where nothing can be gained."""
