"""Gains from merged and late gradients, by coverage rate."""
