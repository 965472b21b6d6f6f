"""Processes that wait to join an elastic job, as one of its members, or one of them, knows them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from hocket.members.member_messages import Welcome


class Newcomers:
    """Hosts of processes that wait to join, or have joined, as far as a coordinator has sent them.

    Attributes:
        wanting: addresses of those that take the state beside training, by their numbers; another thread may read it.
    """

    def __init__(self) -> None:
        self._hosts: dict[int, str] = {}
        self.wanting: Mapping[int, str] = MappingProxyType({})

    def welcome(self, message: Welcome) -> None:
        """Add a process that waits."""
        self._hosts[message.member] = message.host
        if message.state is not None:
            self.wanting = MappingProxyType({**self.wanting, message.member: message.state})

    def met(self, members: Collection[int]) -> None:
        """Note that these members meet: they wait no longer."""
        left = {each: address for each, address in self.wanting.items() if each not in members}
        self.wanting = MappingProxyType(left)

    def hosts_of(self, members: Collection[int]) -> dict[int, str]:
        return {each: self._hosts.get(each, "an unknown host") for each in members}
