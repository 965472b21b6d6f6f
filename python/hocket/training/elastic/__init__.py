"""Training that goes on without lost ranks: sessions whose job may change its members."""
