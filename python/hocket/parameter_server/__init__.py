"""Training with parameter servers: what is where, who waits for whom, and the programs that push and pull. Loads no framework."""
