"""A recorded run's traffic again, on real sockets: the same programs, launched when they were, without the computation."""
