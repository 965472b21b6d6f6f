"""Where parameters are kept, what is chosen, and the programs of push and pull."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.errors import PeerError, UsageError
from hocket.launch.hosts import Slots, place_servers
from hocket.parameter_server.choice import ParameterServer, with_roles
from hocket.parameter_server.description import Description, Group, Parameter
from hocket.parameter_server.keys import SPLIT_ELEMENTS_MIN, place
from hocket.parameter_server.programs import buffers_program, first_pull_program, key_program, step_program
from hocket.settings import Settings

SIZES = st.lists(st.tuples(st.integers(1, 3_000_000), st.sampled_from([2, 4, 8])), min_size=1, max_size=40)


@given(sizes=SIZES, servers=st.integers(1, 7))
def test_every_element_is_on_one_server_and_servers_are_even(sizes, servers):
    """An element on no server would never be trained; a full server would hold all others up."""
    placed = place(sizes, servers)
    held = [0] * servers
    for (elements, size), pieces in zip(sizes, placed, strict=True):
        assert [piece.start for piece in pieces] == [0, *(piece.stop for piece in pieces[:-1])]
        assert pieces[-1].stop == elements
        assert len({piece.server for piece in pieces}) == len(pieces)
        assert len(pieces) == (servers if elements >= SPLIT_ELEMENTS_MIN else 1)
        for piece in pieces:
            held[piece.server] += len(piece) * size
    whole = max((elements * size for elements, size in sizes if elements < SPLIT_ELEMENTS_MIN), default=0)
    # The last that went to the fullest server went where the fewest bytes were; parts of a split key differ by an element.
    assert max(held) - min(held) <= whole + 8 * len(sizes)


def described(workers, servers, sizes):
    return Description(
        workers=workers,
        servers=servers,
        staleness=0,
        optimizer="SGD",
        keys=tuple(
            Parameter(name=f"p{at}", elements=elements, dtype={2: "f16", 4: "f32", 8: "f64"}[size], group=0)
            for at, (elements, size) in enumerate(sizes)
        ),
        groups=(Group(fixed={}, numbers={"betas": (0.9, 0.999), "lr": 0.1}),),
        buffers_bytes=12,
    )


@given(sizes=st.lists(st.tuples(st.integers(1, 2_000_000), st.sampled_from([2, 4, 8])), min_size=1, max_size=4),
       workers=st.integers(1, 4), servers=st.integers(1, 4))  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_programs_are_right_for_any_model_and_job(sizes, workers, servers):
    """A job would be refused, or would race, when it starts."""
    description = described(workers, servers, sizes)
    for worker in range(workers):
        assert step_program(description, worker).findings() == []
        for key, pieces in enumerate(description.pieces):
            both = key_program(description, key, worker), first_pull_program(description, key, worker)
            for program in both:
                assert program.findings() == []
                serving = {workers + piece.server for piece in pieces}
                assert set(program.pairs()) == {(worker, rank) for rank in serving} | {
                    (rank, worker) for rank in serving
                }
    assert buffers_program(description).findings() == []


@given(numbers=st.lists(st.floats(allow_nan=False), min_size=3, max_size=3))
def test_options_travel_as_numbers_and_come_back(numbers):
    """A schedule's learning rate would become another option's value."""
    group = described(1, 1, [(1, 4)]).groups[0]
    options = group.options(numbers)
    assert Group(fixed={}, numbers=options).flat() == numbers
    assert options == {"betas": tuple(numbers[:2]), "lr": numbers[2]}


@pytest.mark.parametrize(
    ("given_settings", "said"),
    [
        (Settings(servers=1, staleness="often"), "staleness `often`: a whole number"),
        (Settings(servers=1, staleness="-1"), "staleness `-1`"),
        (Settings(servers=-1), "-1 parameter servers"),
        (Settings(staleness="4"), "needs parameter servers"),
    ],
)
def test_wrong_choices_are_refused(given_settings, said):
    """A typing error would train in another mode than the user believes."""
    with pytest.raises(UsageError, match=said):
        ParameterServer.of(given_settings)


def test_choices_have_names_and_leave_workers():
    """Users could not tell which mode runs, or a job without workers would start and do nothing."""
    assert ParameterServer.of(Settings()) is None
    titles = [ParameterServer.parse(servers=1, staleness=each).title for each in ("0", "4", "any")]
    assert titles == [
        "1 server, synchronous",
        "1 server, at most 4 iterations apart",
        "1 server, asynchronous",
    ]
    with pytest.raises(UsageError, match="2 of 2 ranks are to serve"):
        ParameterServer(servers=2).workers(2)


def test_a_server_that_dies_is_called_one():
    """A user would look for a training script's mistake on a rank that runs none."""
    lost = PeerError("rank 3 on b closed its connection\nhint: look", rank=3, host="b", why="lost")
    named = with_roles(lost, workers=2)
    assert str(named) == "parameter server 1: rank 3 on b closed its connection\nhint: look"
    assert (named.rank, named.host, named.why) == (3, "b", "lost")
    late = with_roles(PeerError("late", rank=1, why="timeout", missing=(1, 2, 3)), workers=2)
    assert str(late) == "parameter servers 0, 1: late"
    worker = PeerError("rank 1 left", rank=1)
    assert with_roles(worker, workers=2) is worker


def test_servers_go_where_no_worker_is():
    """Servers would share a network card with workers while hosts stand idle."""
    hosts = [Slots(name="a", slots=2), Slots(name="b"), Slots(name="c")]
    assert place_servers(hosts, 2, 2) == ["b", "c"]
    assert place_servers(hosts, 3, 3) == ["c", "a", "b"]
    assert place_servers(hosts, 4, 2) == ["a", "b"]
