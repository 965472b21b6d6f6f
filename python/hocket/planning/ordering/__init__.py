"""Rank order: from matrices of hosts to an order in which collectives cost little.

Useful without the rest of Hocket. The costs and the search are native (`crates/order`).
"""
