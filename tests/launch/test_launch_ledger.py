"""What the store answers, to whom and when: without sockets, threads or a clock."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from hocket.job.store import ledger as ledgers
from hocket.job.store.frames import FrameError
from hocket.job.store.ledger import Ledger
from hocket.job.store.messages import Add, Done, Failed, Gather, Get, Hello, Leave, Ping, Set

S = 1_000_000_000


class Room:
    """A ledger with ranks in it; client number = rank."""

    def __init__(self, ranks=0, **options):
        self.ledger = Ledger(**options)
        for rank in range(ranks):
            assert self.ask(rank, Hello(rank=rank, who=f"rank {rank} on host{rank}")) == {rank: None}

    def ask(self, client, request, now_ns=0):
        self.ledger.handle(client, request, now_ns)
        return self.answers()

    def answers(self):
        return {
            client: msgspec.json.decode(answer.value) if isinstance(answer, Done) else answer
            for client, answer in self.ledger.poll()
        }

    def gather(self, rank, world, value=None, timeout_s=10.0, now_ns=0, **options):
        value = Raw(msgspec.json.encode(value))
        request = Gather(name="g", rank=rank, world=world, value=value, timeout_s=timeout_s, **options)
        return self.ask(rank, request, now_ns)


@given(st.permutations(range(6)))
def test_a_gather_gives_everyone_all_values_by_rank(arrival):
    """Ranks would get each other's addresses mixed up."""
    room, got = Room(6), {}
    for rank in arrival:
        got |= room.gather(rank, 6, f"v{rank}")
    assert got == {rank: [f"v{each}" for each in range(6)] for rank in range(6)}


def test_a_gather_can_be_repeated_under_its_name():
    """The second barrier of a job would return at once with the first one's values."""
    room = Room(2)
    for turn in range(3):
        assert room.gather(0, 2, turn) == {}
        assert room.gather(1, 2, -turn) == {0: [turn, -turn], 1: [turn, -turn]}


@given(st.permutations(range(4)), st.sampled_from(["lost", "gave up", "left"]), st.booleans())
def test_a_gather_goes_on_without_lost_ranks_where_that_is_asked(arrival, how, gave_its_value):
    """In an elastic job, data that is first asked for after a loss, or while a rank is lost, would end it."""
    room, got = Room(4), {}
    *others, victim = arrival
    for rank in others[:2]:
        got |= room.gather(rank, 4, f"v{rank}", without_lost=True)
    if gave_its_value:
        got |= room.gather(victim, 4, f"v{victim}", without_lost=True)
    if how == "lost" or gave_its_value:  # who waits for an answer cannot take leave
        room.ledger.disconnect(victim)
        got |= room.answers()
    else:
        got |= room.ask(victim, Leave(reason="it has no data" if how == "gave up" else None))
        del got[victim]
    assert got == {}
    got |= room.gather(others[2], 4, f"v{others[2]}", without_lost=True)
    values = [None if rank == victim and not gave_its_value else f"v{rank}" for rank in range(4)]
    assert got == dict.fromkeys(others, values)
    for rank in others[:-1]:
        assert room.gather(rank, 4, rank, without_lost=True) == {}
    last = room.gather(others[-1], 4, others[-1], without_lost=True)
    assert last == {each: [None if rank == victim else rank for rank in range(4)] for each in others}


def test_the_last_that_a_gather_waits_for_is_lost():
    """The others would wait for it until their time is up; those that need all ranks are told at once, as ever."""
    room = Room(4)
    for rank in range(2):
        assert room.gather(rank, 3, rank, without_lost=True) == {}
    assert room.ask(3, Get(key="k", timeout_s=10)) == {}
    room.ledger.disconnect(2)
    answers = room.answers()
    assert isinstance(answers.pop(3), Failed)
    assert answers == {0: [0, 1, None], 1: [0, 1, None]}


def test_a_counter_is_waited_for():
    """An exchange would go on before enough ranks have come, or never."""
    room = Room(3)
    waits = Get(key="came", timeout_s=10, at_least=2)
    assert room.ask(0, waits) == {}
    assert room.ask(1, Add(key="came", n=1)) == {1: 1}
    assert room.ask(2, Add(key="came", n=1)) == {2: 2, 0: 2}
    assert room.ask(0, waits) == {0: 2}
    # One that waits for any value gets the first.
    assert room.ask(0, Get(key="other", timeout_s=10)) == {}
    assert room.ask(1, Add(key="other", n=1)) == {1: 1, 0: 1}
    # A text is never enough.
    room.ask(1, Set(key="text", value=Raw(b'"many"')))
    assert room.ask(0, Get(key="text", timeout_s=10, at_least=0)) == {}


def test_a_time_out_names_the_missing_ranks_to_all_who_wait():
    """Nobody would know which machine to look at."""
    room = Room(4)
    room.gather(0, 4, timeout_s=2)
    room.gather(2, 4, timeout_s=9)
    assert room.ledger.deadline_ns() == 2 * S
    room.ledger.expire(2 * S - 1)
    assert room.answers() == {}
    room.ledger.expire(2 * S)
    answers = room.answers()
    assert set(answers) == {0, 2}
    assert all(answer.missing == (1, 3) and answer.rank == 1 for answer in answers.values())
    assert all("ranks 1, 3 of 4 did not come" in answer.message for answer in answers.values())
    assert room.ledger.deadline_ns() is None


def test_the_missing_of_a_large_world_are_counted_not_listed():
    """The error message of a large job would fill the screen."""
    room = Room(1)
    room.gather(0, 1000, timeout_s=1)
    room.ledger.expire(S)
    answer = room.answers()[0]
    assert "and 987 more of 1000" in answer.message
    assert answer.missing == tuple(range(1, 1000))


def test_disagreeing_world_sizes_are_told_to_everyone():
    """Ranks of a job that was started inconsistently would wait for ranks that do not exist."""
    room = Room(4)
    room.gather(0, 4)
    room.gather(1, 4)
    answers = room.gather(3, 8)
    assert set(answers) == {0, 1, 3}
    for answer in answers.values():
        assert answer.rank == 3
        assert "rank 3 on host3 was started with world size 8, rank 0 on host0 with 4" in answer.message


def test_a_latecomer_with_another_world_size_does_not_disturb():
    """A stray process would break a job that runs."""
    room = Room(3)
    room.gather(0, 2)
    room.gather(1, 2)
    assert set(room.gather(2, 3)) == {2}
    room.gather(0, 2)
    assert set(room.gather(1, 2)) == {0, 1}


def test_two_processes_with_one_rank_are_told_to_everyone_while_ranks_meet():
    """A job with rank 1 twice and rank 2 never would wait for rank 2 in vain."""
    room = Room(2)
    room.gather(0, 3)
    answers = room.ask(9, Hello(rank=1, who="rank 1 on host9"))
    assert set(answers) == {0, 9}
    assert all(answer.rank == 1 for answer in answers.values())
    assert all("rank 1 on host1, and rank 1 on host9" in answer.message for answer in answers.values())
    assert "two processes" in room.gather(1, 3)[1].message


def test_a_rank_that_exists_twice_soon_after_ranks_have_met_may_be_of_another_job():
    """Rank 0 of one job and rank 1 of another would train together, if anybody knows the secret; later, a stray disturbs nobody."""
    for wary_s, now_ns, told in [(60.0, 50 * S, {0, 9}), (60.0, 70 * S, {9}), (0.0, S, {9})]:
        room = Room(2, wary_s=wary_s)
        room.gather(0, 2, now_ns=S)
        assert set(room.gather(1, 2, now_ns=S)) == {0, 1}
        room.gather(0, 2, now_ns=2 * S)
        assert set(room.ask(9, Hello(rank=1, who="rank 1 on host9"), now_ns)) == told


def test_a_rank_that_seems_to_have_another_secret_is_not_waited_for_to_the_end():
    """Rank 0 would wait the whole start for a rank that gave up at once."""
    room = Room(1)
    room.gather(0, 2, timeout_s=60.0)
    room.ledger.doubt(1, "10.0.0.2: it does not know", S)
    assert room.ledger.deadline_ns() == S + round(ledgers.DOUBT_S * S)
    room.ledger.expire(S + round(ledgers.DOUBT_S * S) - 1)
    assert room.answers() == {}
    room.ledger.expire(S + round(ledgers.DOUBT_S * S))
    (answer,) = room.answers().values()
    assert answer.rank == 1
    assert "rank 1 has not come, but from 10.0.0.2: it does not know" in answer.message


def test_another_jobs_rank_does_not_keep_ours_from_coming():
    """A job that looks for its store at an address that ours has would end ours."""
    room = Room(1)
    room.gather(0, 2, timeout_s=60.0)
    room.ledger.doubt(1, "10.0.0.2: it does not know", S)
    room.ask(1, Hello(rank=1, who="rank 1 on host1"), 2 * S)
    room.ledger.expire(30 * S)
    assert set(room.gather(1, 2, now_ns=31 * S)) == {0, 1}


def test_a_rank_that_dies_ends_all_waits_now_and_later():
    """The others would wait until the time-out for a rank that is dead."""
    room = Room(3)
    room.gather(0, 3)
    room.ledger.disconnect(2)
    told = [room.answers()[0], room.gather(1, 3)[1], room.ask(1, Get(key="k", timeout_s=9))[1]]
    assert [answer.rank for answer in told] == [2, 2, 2]
    assert all("rank 2 on host2 ended" in answer.message for answer in told)


def test_a_rank_that_ended_before_it_came_is_not_waited_for():
    """A script that ends with a typing error on one host would keep all other ranks until the time-out."""
    room = Room(2)
    room.gather(0, 3)
    room.ledger.refuse_absent(2, "rank 2 on c ended")
    told = [room.answers()[0], room.gather(1, 3)[1]]
    assert [(answer.rank, answer.message) for answer in told] == [(2, "rank 2 on c ended")] * 2


def test_a_rank_that_came_and_left_in_order_may_end_as_it_likes():
    """An error at a rank's very end would fail the others in the middle of their last step."""
    room = Room(3)
    room.ask(2, Leave(reason=None))
    room.ledger.refuse_absent(2, "rank 2 on c ended")
    assert room.gather(0, 2) == {}
    assert room.gather(1, 2) == {0: [None, None], 1: [None, None]}


def test_a_reason_to_give_up_reaches_everyone():
    """Only one rank would say that the models differ; the others would time out."""
    room = Room(2)
    room.ask(0, Get(key="plan", timeout_s=9))
    answers = room.ask(1, Leave(reason="layer.weight has shape 3 here"))
    assert answers[0].rank == 1
    assert answers[0].message == "rank 1 on host1 gave up: layer.weight has shape 3 here"
    assert answers[1] is None


@pytest.mark.parametrize("reason", ["PeerError: rank 2 on host2 is silent", None])
def test_those_that_wait_are_told_the_first_cause(reason):
    """Whoever ends because of another rank would be blamed by all that wait at the store."""
    room = Room(3)
    room.gather(0, 3)
    answers = room.ask(1, Leave(reason=reason, cause=2, why="silent"))
    assert answers[0].rank == 2
    assert "rank 1 on host1" in answers[0].message
    assert "rank 2" in answers[0].message


def test_waiting_for_a_rank_that_left_in_order_ends_at_once():
    """A rank that does one step more than the others would hang in its last barrier."""
    room = Room(2)
    room.ask(1, Leave(reason=None))
    answer = room.gather(0, 2)[0]
    assert (answer.rank, answer.missing) == (1, ())
    assert "rank 1 on host1 has left" in answer.message


def test_a_rank_that_comes_back_is_waited_for_again():
    """A restarted rank could never join again."""
    room = Room(2)
    room.ledger.disconnect(1)
    room.ask(7, Hello(rank=1, who="rank 1 again"))
    assert room.gather(0, 2) == {}


def test_get_waits_for_set_and_names_the_key():
    """A value that rank 0 publishes after the others asked for it would never reach them."""
    room = Room(2)
    assert room.ask(0, Get(key="plan", timeout_s=5)) == {}
    assert room.ask(1, Set(key="plan", value=Raw(b'{"a": 1}'))) == {1: None, 0: {"a": 1}}
    room.ask(0, Get(key="loss/3", timeout_s=5))
    room.ledger.expire(5 * S)
    answer = room.answers()[0]
    assert (answer.rank, answer.missing) == (3, (3,))
    assert "`loss/3` of rank 3" in answer.message


def test_counters_count():
    """Ranks that draw numbers from a counter would draw the same one."""
    room = Room(1)
    assert [room.ask(0, Add(key="n", n=2))[0] for _ in range(3)] == [2, 4, 6]
    room.ask(0, Set(key="text", value=Raw(b'"x"')))
    assert "no counter" in room.ask(0, Add(key="text", n=1))[0].message


def test_ping_gives_the_clock():
    """Traces of several hosts would not line up."""
    room = Room(1)
    assert room.ask(0, Ping(), 1234) == {0: 1234}


@pytest.mark.parametrize(("limit", "at"), [("KEYS_MAX", 2), ("STORED_BYTES_MAX", 25)])
def test_the_store_is_bounded_and_says_which_limit(monkeypatch, limit, at):
    """A loop that sets keys would eat the launcher's memory."""
    monkeypatch.setattr(ledgers, limit, at)
    room = Room(1)
    value = Raw(b'"0123456789"')
    assert room.ask(0, Set(key="a", value=value)) == {0: None}
    assert room.ask(0, Set(key="b", value=value)) == {0: None}
    assert limit in room.ask(0, Set(key="c", value=value))[0].message
    assert room.ask(0, Set(key="a", value=value)) == {0: None}


requests = st.one_of(
    st.builds(Hello, rank=st.none() | st.integers(0, 3), who=st.just("w")),
    st.builds(Set, key=st.sampled_from("ab"), value=st.just(Raw(b"1"))),
    st.builds(Get, key=st.sampled_from("ab"), timeout_s=st.sampled_from([0.0, 1.0])),
    st.builds(Add, key=st.sampled_from("ab"), n=st.integers(-3, 3)),
    st.builds(
        Gather,
        name=st.sampled_from("gh"),
        rank=st.integers(0, 3),
        world=st.integers(1, 4),
        value=st.just(Raw(b"1")),
        timeout_s=st.sampled_from([0.0, 1.0]),
    ),
    st.just(Ping()),
    st.builds(Leave, reason=st.none() | st.just("r")),
)


@given(
    st.lists(st.tuples(st.integers(0, 4), requests | st.sampled_from(["disconnect", "expire"])), max_size=60)
)
def test_whatever_clients_do_each_request_gets_one_answer(script):
    """A confused client would end the store's thread, or leave another rank without an answer."""
    ledger, owed, now_ns = Ledger(), dict.fromkeys(range(5), 0), 0
    for client, request in script:
        now_ns += S // 2
        if request == "expire":
            ledger.expire(now_ns)
        elif request == "disconnect":
            ledger.disconnect(client)
            owed[client] = 0
        else:
            try:
                ledger.handle(client, request, now_ns)
                owed[client] += 1
            except FrameError:
                ledger.disconnect(client)
                owed[client] = 0
        for answered, answer in ledger.poll():
            assert isinstance(answer, Done | Failed)
            owed[answered] -= 1
        assert all(0 <= count <= 1 for count in owed.values())
    ledger.expire(now_ns + 2 * S)
    for answered, _ in ledger.poll():
        owed[answered] -= 1
    assert not any(owed.values())
