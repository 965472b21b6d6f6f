"""A plain host list, the input of `hocket run --hosts` and many others: one host a line, with its slots if there are several."""

from __future__ import annotations

from hocket.tools.ordering.handover.layout import Layout


def text(layout: Layout) -> str:
    """The file.

    >>> text(Layout((("b", 2), ("a", 1))))
    'b slots=2\\na\\n'
    """
    return "".join(f"{host} slots={slots}\n" if slots > 1 else f"{host}\n" for host, slots in layout.hosts)
