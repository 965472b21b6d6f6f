"""Replay of a recorded run's traffic on real sockets: the same programs at the same times, without the computation."""
