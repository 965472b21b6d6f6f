"""The job that drives itself: it looks at its network, profiles its model, plans again and changes its plan while it trains.

`pilot` decides, `beside` is the thread in which that happens, `stopwatch` measures steps, `plans` keeps what can be in force,
`proposal` asks the planner.
"""
