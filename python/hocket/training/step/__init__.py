"""A step: sessions that reduce gradients and apply them, now or later, and what they vote on."""
