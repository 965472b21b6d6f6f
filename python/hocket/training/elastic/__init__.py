"""Training that goes on without lost ranks: what a session does when the members of its job change."""
