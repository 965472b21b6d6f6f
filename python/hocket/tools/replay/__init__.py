"""Sends a recorded run's traffic again on real sockets: the same programs at the same times, without the computation."""
