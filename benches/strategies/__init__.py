"""Plans of the planner against those of builders, on emulated clusters."""
