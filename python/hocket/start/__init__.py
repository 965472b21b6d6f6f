"""Launcher that starts ranks, locally or remotely, watches them, and leaves nothing behind: `hocket run`, `join`, `resume`."""
