"""Step of training: sessions that reduce gradients and apply them, now or later, and their votes."""
