"""Autopilot of a job: it looks at the network, profiles the model, plans again and changes the plan while the job trains.

`pilot` decides, `beside` is the thread that carries decisions out, `coordinator` is rank 0's part of it. `stopwatch` times steps,
`connections` and `traffic` watch the traffic, `knowledge` asks the planner, `plans` keeps plans that can be in force.
"""
