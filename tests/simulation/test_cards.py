"""Plans whose buckets use some network cards alone, in the flow engine: each card by itself, and as the closed form has them."""

import msgspec
import pytest

from hocket.artefacts import trace
from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.artefacts.plan import AllReduce, Due, Schedule, Turn
from hocket.errors import UsageError
from hocket.planning import ways
from hocket.planning.buckets import buckets, plan_of
from hocket.tools.simulation import flow, record
from hocket.tools.simulation.conditions import Conditions, Costs, LinkChange
from hocket.tools.simulation.fidelity import predict
from hocket.tools.simulation.networks import from_cluster
from tests.planning.planner_inputs import model

RATES = (330e6, 200e6)
PROFILE = model(8, 250_000)
FREE = Costs(
    send_s=0, receive_s=0, reduce_s_per_byte=0, cast_s_per_byte=0, copy_s_per_byte=0, socket_s_per_byte=0
)


def cluster(rates=RATES, count=4, racks=()):
    hosts = (
        Host(
            name=f"h{at}",
            bandwidth_bit_per_s=sum(rates),
            cards_bit_per_s=rates,
            rack=racks[at % len(racks)].name if racks else None,
        )
        for at in range(count)
    )
    return Cluster(hosts=tuple(hosts), racks=racks)


def plan(algorithm="ring", count=4):
    each = [[gradient] for gradient in PROFILE.gradients]
    return plan_of(buckets(each, AllReduce(algorithm=algorithm), range(count)), count, label=algorithm)


def on(*cards, **given):
    return ways.on_cards(plan(**given), list(cards), "")


def run(made, of, **given):
    return flow.predict(made, from_cluster(of, made.world), PROFILE, **given)


@pytest.mark.parametrize("algorithm", ["ring", "direct", "halving_doubling"])
@pytest.mark.parametrize("hosts", [4, 2])
def test_a_card_alone_is_a_network_of_its_own(algorithm, hosts):
    """Broken: bytes on one card would take another card's time, or announcements would wait on a card that they do not use."""
    for card, rate in enumerate(RATES):
        # Two ranks a host talk through its memory, which cards share.
        one = Host(name="x", bandwidth_bit_per_s=1.0, slots=4 // hosts)
        two, single = (
            msgspec.structs.replace(
                each,
                hosts=tuple(msgspec.structs.replace(host, slots=one.slots) for host in each.hosts[:hosts]),
            )
            for each in (cluster(), cluster((rate,)))
        )
        found = run(on(*[card] * 8, algorithm=algorithm), two)
        alone = run(plan(algorithm), single)
        assert found.outcome.step_s == pytest.approx(alone.outcome.step_s, rel=1e-9)
        assert found.outcome.messages == alone.outcome.messages
        assert found.simulation.launches_s == alone.simulation.launches_s
        carried = {each.link: each.bytes for each in found.outcome.loads}
        expected = {
            each.link if each.link.startswith("memory") else f"card {card}: {each.link}": each.bytes
            for each in alone.outcome.loads
        }
        assert carried == pytest.approx(expected)


@pytest.mark.parametrize(
    "cards",
    [[0] * 8, [1] * 8, [0, 0, 0, 1, 0, 0, 1, 1], [0, 1] * 4],
    ids=["first", "second", "three of eight", "in turn"],
)
def test_both_engines_agree_where_wires_are_all_there_is(cards):
    """Broken: the planner would choose cards by one engine that the other finds slow."""
    made = on(*cards)
    found = run(made, cluster(), costs=FREE).outcome.step_s
    assert found == pytest.approx(predict(made, cluster(), PROFILE, fidelity="closed-form").step_s, rel=0.01)


def test_a_bucket_on_several_cards_is_striped_by_their_rates():
    """Broken: one card would be done before the other, or bytes be counted twice."""
    whole = plan()
    both = msgspec.structs.replace(
        whole, buckets=tuple(msgspec.structs.replace(each, cards=(0, 1)) for each in whole.buckets)
    )
    found = run(both, cluster(), costs=FREE).outcome
    assert found.step_s == pytest.approx(run(whole, cluster(), costs=FREE).outcome.step_s, rel=0.01)
    carried = {each.link: each.bytes for each in found.loads}
    total = sum(each.elements for each in whole.buckets) * 4 * 2 * 3 / 4
    for link in (f"h{at} {side}" for at in range(4) for side in ("out", "in")):
        own = [carried[f"card {card}: {link}"] for card in (0, 1)]
        assert sum(own) == pytest.approx(total, rel=1e-4)
        assert own[0] / own[1] == pytest.approx(RATES[0] / RATES[1], rel=1e-3)
    # A bucket that says nothing of cards is on all of them, beside others that choose.
    mixed = msgspec.structs.replace(both, buckets=(*both.buckets[:4], *whole.buckets[4:]))
    assert run(mixed, cluster(), costs=FREE).outcome.step_s == found.step_s
    assert [each.bucket for each in found.buckets] == list(range(8))
    assert all(each.done_s > each.launched_s for each in found.buckets)


def test_only_the_first_card_is_behind_a_trunk_and_each_has_conditions_of_its_own():
    """Broken: a narrow trunk, or a slow link, would slow down cards that it is not on."""
    racks = tuple(Rack(name=name, uplink_bit_per_s=1e8) for name in "ab")
    first, second = (run(on(*[card] * 8), cluster((330e6, 330e6), racks=racks)) for card in (0, 1))
    assert first.outcome.step_s > 2 * second.outcome.step_s
    slowed = Conditions(changes=(LinkChange(at_s=0.0, link="card 1: h0 out", bit_per_s=1e7),))
    made = on(*[0, 1] * 4)
    calm, changed = (run(made, cluster(), conditions=each).outcome for each in (None, slowed))
    done = [[each.done_s for each in found.buckets] for found in (calm, changed)]
    assert done[0][::2] == pytest.approx(done[1][::2])
    assert all(later > before for before, later in zip(done[0][1::2], done[1][1::2], strict=True))
    with pytest.raises(UsageError, match="there is no link `h0 out`"):
        run(
            made,
            cluster(),
            conditions=Conditions(changes=(LinkChange(at_s=0.0, link="h0 out", bit_per_s=1e7),)),
        )


def test_cards_that_are_not_there_are_named():
    """Broken: a plan for another cluster would be simulated on cards that exist."""
    with pytest.raises(UsageError, match="bucket 0 uses card 2, and all hosts have 2"):
        run(on(*[2] * 8), cluster())
    with pytest.raises(UsageError, match="bucket 0 uses card 1, and all hosts have 1"):
        run(on(*[1] * 8), cluster((1e9,)))


def test_turns_and_traces_have_the_parts_of_a_bucket(tmp_path):
    """Broken: parts of a bucket would be applied at different times, or the report would lack bytes of one."""
    late = (Turn(first=0, last=0, due=Due(iteration=1)),)
    both = [msgspec.structs.replace(each, cards=(0, 1)) for each in plan().buckets]
    first = msgspec.structs.replace(both[0], cards=(1,))
    made = msgspec.structs.replace(
        plan(), buckets=(first, *both[1:]), schedule=Schedule(turns=(late,) * 8, delay_max=1)
    )
    found = run(made, cluster(), steps=4, recorded=True)
    assert len(found.parts) == 15
    in_time = msgspec.structs.replace(made, schedule=Schedule())
    assert found.outcome.step_s < run(in_time, cluster()).outcome.step_s
    record.write(
        tmp_path,
        plan=made,
        profile=PROFILE,
        network=from_cluster(cluster(), 4),
        simulation=found.simulation,
        parts=found.parts,
    )
    read = trace.read(tmp_path)
    by_bucket = {at: [each for each in read.run.programs if each.bucket == at] for at in range(8)}
    assert [len(own) for own in by_bucket.values()] == [1, *[2] * 7]
    for at, own in by_bucket.items():
        assert sum(each.bytes for each in own) == pytest.approx(made.buckets[at].elements * 4, abs=2)
