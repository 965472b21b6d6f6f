"""The job that drives itself: it looks at its network, profiles its model, plans again and changes its plan while it trains.

`pilot` decides, `beside` is the thread in which that happens, `coordinator` is rank 0's part of it. `stopwatch` measures steps,
`connections` and `traffic` what they send, `knowledge` asks the planner, `plans` keeps what can be in force.
"""
