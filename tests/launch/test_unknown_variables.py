"""Variables that begin with HOCKET_ and that nobody reads are refused by whatever makes a process a rank, and named with a cure."""

import pytest

from hocket.errors import UsageError
from hocket.job.rendezvous import join
from hocket.settings import Settings
from hocket.unknown_variables import unknown

MISSPELT = [
    ("HOCKET_TIMEOUT", "HOCKET_TIMEOUT_S"),
    ("HOCKET_HEARTBEAT_S", "HOCKET_HEARTBEAT_TIMEOUT_S"),
    ("HOCKET_WORLD_SIZE", "HOCKET_WORLD"),
    ("HOCKET_POLICIES", "HOCKET_POLICY"),
    ("HOCKET_THREAD", "HOCKET_THREADS"),
    ("HOCKET_XYZZY", None),
]
OF_KUBERNETES = {
    "HOCKET_SERVICE_HOST": "10.0.0.1",
    "HOCKET_SERVICE_PORT_HTTP": "80",
    "HOCKET_STORE_PORT": "tcp://10.0.0.1:80",
    "HOCKET_STORE_PORT_80_TCP_ADDR": "10.0.0.1",
}


@pytest.mark.parametrize(("name", "meant"), MISSPELT)
def test_a_variable_that_nobody_reads_is_refused_with_the_nearest_name(name, meant):
    """`HOCKET_TIMEOUT=5` would be ignored, and the user believe that ranks are waited for so long."""
    with pytest.raises(UsageError) as refused:
        Settings.from_environment({name: "5"})
    assert f"nobody reads {name}" in refused.value.summary
    assert (
        (f"did you mean {meant}?" in refused.value.summary) if meant else ("mean" not in str(refused.value))
    )
    assert "hocket doctor" in str(refused.value)
    with pytest.raises(UsageError, match=f"nobody reads {name}"):
        join(environment={name: "5"})


def test_all_of_them_are_named_at_once_and_empty_ones_are_not_set():
    """Each start would show one of them."""
    with pytest.raises(UsageError, match=r"nobody reads HOCKET_PLANN \(.*HOCKET_PLAN\?\), HOCKET_XYZZY\n"):
        Settings.from_environment({"HOCKET_PLANN": "a", "HOCKET_XYZZY": "b"})
    assert Settings.from_environment({"HOCKET_PLANN": "", "HOCKET_PLAN": "p"}).plan == "p"


def test_services_of_a_cluster_may_be_called_hocket():
    """Kubernetes gives their addresses to every container of the namespace, and no job would start there."""
    found = {"KUBERNETES_SERVICE_HOST": "10.0.0.2", "HOCKET_RNAK": "1"}
    assert unknown(OF_KUBERNETES | found, Settings.names()) == ["HOCKET_RNAK"]
    assert unknown(OF_KUBERNETES, Settings.names()) == sorted(OF_KUBERNETES)
