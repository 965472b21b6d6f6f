"""Training with parameter servers: placement of keys, consistency, and the programs that push and pull.

Loads no framework.
"""
