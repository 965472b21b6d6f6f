"""Rank order: matrices of hosts in, an order in which collectives cost little out, and the files by which launchers take it.

Useful without the rest of Hocket. The costs and the search are native (`crates/order`).
"""
