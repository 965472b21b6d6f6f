"""Where the store listens: where the job's ranks look for it, and nowhere else."""

import pytest

from hocket.job.store import address, interfaces, listening

HERE = (("eth0", "10.0.0.5/24"), ("ib0", "10.1.0.5/24"), ("lo", "127.0.0.1/8"))
NAMES = {
    "node0": ["10.0.0.5"],
    "debian": ["127.0.1.1"],
    "service": ["10.9.0.1"],
    "cards": ["10.0.0.5", "10.1.0.5"],
}


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """One with two cards, of which the first leads out."""

    def resolve(host, port):
        if host not in NAMES:
            raise address.UnknownNameError(host)
        return [(2, (each, port)) for each in NAMES[host]]

    monkeypatch.setattr(interfaces, "here", lambda: HERE)
    monkeypatch.setattr(address, "resolve", resolve)
    monkeypatch.setattr(address, "towards", {"192.0.2.1": "10.0.0.5"}.get)


@pytest.mark.parametrize(
    ("name", "interface", "one_host", "expected"),
    [
        ("10.1.0.5", None, False, ["10.1.0.5"]),
        ("127.0.0.1", None, True, ["127.0.0.1"]),
        # What the name means here is what others reach.
        ("node0", None, False, ["127.0.0.1", "10.0.0.5"]),
        ("node0", "ib0", False, ["127.0.0.1", "10.0.0.5"]),
        ("cards", None, False, ["127.0.0.1", "10.0.0.5", "10.1.0.5"]),
        # What it means elsewhere cannot be known.
        ("debian", None, False, ["127.0.0.1", "127.0.1.1", "10.0.0.5"]),
        ("debian", "ib0", False, ["127.0.0.1", "127.0.1.1", "10.1.0.5"]),
        ("debian", "all", False, ["127.0.0.1", "127.0.1.1", "10.0.0.5"]),
        ("service", None, False, ["127.0.0.1", "10.0.0.5"]),
        ("unknown", None, False, ["127.0.0.1", "10.0.0.5"]),
        # Nobody looks from elsewhere.
        ("debian", None, True, ["127.0.0.1", "127.0.1.1"]),
        ("unknown", "ib0", True, ["127.0.0.1"]),
    ],
)
def test_the_job_s_interface_alone(name, interface, one_host, expected):
    """The store would be open to networks that the job does not use, or closed to its own ranks."""
    assert list(listening.under(name, interface=interface, one_host=one_host)) == expected
