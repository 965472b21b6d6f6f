"""Names of hosts that are called alike."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from hocket.artefacts.names import check_hosts
from hocket.job.host import job_names

NAMES = st.sampled_from(["vm", "vm-2", "vm-3", "localhost"])


@given(st.lists(st.tuples(NAMES, st.sampled_from("abcdef")), min_size=1, max_size=12))
def test_each_host_has_a_name_of_its_own_that_files_may_have(ranks):
    """A job on four machines that are all called alike would end as soon as it looks at its network, or take two for one."""
    names = [name for name, _ in ranks]
    identities = [f"{identity} called {name}" for name, identity in ranks]
    found = job_names(names, identities)
    check_hosts(found, "the job")
    for a, b in itertools.combinations(range(len(ranks)), 2):
        assert (found[a] == found[b]) == (identities[a] == identities[b])
