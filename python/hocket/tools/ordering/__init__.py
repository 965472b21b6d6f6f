"""Rank orders for programs that are not Hocket's: topologies of clouds, files of launchers."""
