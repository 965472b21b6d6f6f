"""Where parameters are kept, what is chosen, and the programs of push and pull."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan_check import findings
from hocket.errors import PeerError, UsageError
from hocket.parameter_server.choice import ParameterServer, with_roles
from hocket.parameter_server.description import Description, Group, Key, Segment
from hocket.parameter_server.keys import SPLIT_ELEMENTS_MIN, place
from hocket.parameter_server.plan import served_plan
from hocket.parameter_server.programs import (
    FIRST_NUMBER,
    check_numbers,
    first_number,
    first_program,
    key_number,
    key_program,
    step_number,
    step_program,
)
from hocket.settings import Settings
from hocket.start.hosts import Slots, place_servers

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


NAMES = {2: "f16", 4: "f32", 8: "f64"}


def described(workers, servers, sizes, *, codec="none", links=(), lengths=()):
    placed = place(sizes, servers)
    return Description(
        workers=workers,
        servers=servers,
        optimizer="SGD",
        keys={
            at: Key(
                name=f"p{at}",
                dtype=NAMES[size],
                segments=(Segment(elements=elements, group=0),),
                lengths=tuple(lengths),
                servers=tuple(piece.server for piece in placed[at]),
                staleness=0,
                priority=at,
                codec=codec,
                links=tuple(links),
            )
            for at, (elements, size) in enumerate(sizes)
        },
        groups=(Group(fixed={}, numbers={"betas": (0.9, 0.999), "lr": 0.1}),),
    )


@given(sizes=st.lists(st.tuples(st.integers(1, 2_000_000), st.sampled_from([2, 4, 8])), min_size=1, max_size=4),
       workers=st.integers(1, 4), servers=st.integers(1, 4))  # fmt: skip
@settings(max_examples=40)
def test_programs_are_right_for_any_model_and_job(sizes, workers, servers):
    """A job would be refused, or would race, when it starts, or ranks would take one program for another."""
    description = described(workers, servers, sizes)
    again = msgspec.structs.replace(description, training=1)
    numbers = []
    for worker in range(workers):
        assert step_program(description, worker).findings() == []
        numbers += [step_number(each, worker) for each in (description, again)]
        for key, own in description.keys.items():
            numbers += [
                number(each, key, worker)
                for number in (key_number, first_number)
                for each in (description, again)
            ]
            assert own.pieces == place(sizes, servers)[key]
            for program in (
                key_program(description, key, worker),
                first_program(description, key, worker),
            ):
                assert program.findings() == []
                serving = {workers + piece.server for piece in own.pieces}
                assert set(program.pairs()) == {(worker, rank) for rank in serving} | {
                    (rank, worker) for rank in serving
                }
    assert len(set(numbers)) == len(numbers)
    assert FIRST_NUMBER <= min(numbers) <= max(numbers) < 1 << 32


def test_a_codec_is_on_its_links_alone():
    """Values would be rounded on the way back, of which nothing was said, or gradients not on the slow link."""
    description = described(2, 2, [(1_000_000, 4)], codec="f16", links=[(0, 2)])
    for make, rounded in ((key_program, {(0, 2, "send")}), (first_program, set())):
        wires = {
            (worker, op["peer"], op["op"]): op["wire"]
            for worker in range(2)
            for op in make(description, 0, worker).ops(worker)
        }
        assert {place for place, wire in wires.items() if wire == "f16"} == rounded


def test_what_lies_in_several_places_is_pushed_together_and_comes_back_apart():
    """Parts of a gradient would be left out, or values land in another parameter."""
    own = key_program(described(1, 1, [(10, 4)], lengths=(3, 7)), 0, 0)
    assert [each[:4:2] for each in own.buffers(0)][:3] == [("key.0", 3), ("key.1", 7), ("key", 10)]
    copies = [(op["src"], op["dst"]) for op in own.ops(0) if op["op"] == "copy"]
    together = [((0, 0, 3), (2, 0, 3)), ((1, 0, 7), (2, 3, 10))]
    assert copies == [*together, *((dst, src) for src, dst in together)]


def test_too_many_programs_are_refused():
    """Two programs would have one number."""
    many = msgspec.structs.replace(described(2, 1, [(1, 4)]), workers=1 << 19)
    with pytest.raises(UsageError, match="larger buckets"):
        check_numbers(many)


SHAPES = st.lists(
    st.tuples(st.integers(0, 400_000), st.sampled_from(["f32", "f64"])), min_size=1, max_size=20
)


@given(
    shapes=SHAPES, workers=st.integers(1, 4), servers=st.integers(1, 4), bucket_bytes=st.integers(0, 1 << 21)
)
def test_a_plan_of_servers_has_every_parameter_and_even_servers(shapes, workers, servers, bucket_bytes):
    """A parameter would not be trained, or one server would hold all others up."""
    gradients = [Gradient(f"p{at}", (elements,), dtype) for at, (elements, dtype) in enumerate(shapes)]
    choice = ParameterServer(servers=servers, bucket_bytes=bucket_bytes)
    plan = served_plan(gradients, workers + servers, choice)
    assert list(findings(plan, gradients)) == []
    if bucket_bytes == 0:
        assert [bucket.variables for bucket in plan.buckets] == [(each.name,) for each in gradients]
    held = dict.fromkeys(range(workers, workers + servers), 0)
    largest = 0
    for bucket in plan.buckets:
        size = sum(each.bytes for each in gradients if each.name in bucket.variables)
        largest = max(largest, size if len(bucket.route.servers) == 1 else 0)
        for rank in bucket.route.servers:
            held[rank] += size // len(bucket.route.servers)
    assert max(held.values()) - min(held.values()) <= largest + 8 * len(plan.buckets)


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
        ({"servers": 1, "staleness": "often"}, "staleness `often`: a whole number"),
        ({"servers": 1, "staleness": "-1"}, "staleness `-1`"),
        ({"servers": -1}, "servers=-1 is not a whole number from 0"),
        ({"staleness": "4"}, "needs parameter servers"),
    ],
)
def test_wrong_choices_are_refused(given_settings, said):
    """A typing error would train in another mode than the user believes."""
    with pytest.raises(UsageError, match=said):
        ParameterServer.of(Settings(**given_settings))


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
