"""Who is told of which change of a job's ranks."""

from hocket.training.loop.changes import Change, Changes, Worker

ONE, TWO, THREE = (Worker(member=each, rank=each, host="a") for each in range(3))


def told(changes: Changes) -> list[Change]:
    found: list[Change] = []
    changes.call(found.append)
    return found


def test_a_newcomer_is_told_that_it_has_joined():
    """A script would begin at step 0, or warm up anew, on the one rank that has come to a job of step 40."""
    changes = Changes([ONE, TWO, THREE])
    changes.come([ONE, TWO], 40)
    (change,) = told(changes)
    assert (change.why, change.step) == ("rank 2 on a joined", 40)
    assert (change.old_world, change.new_world, change.joined, change.lost) == (2, 3, (THREE,), ())


def test_nobody_is_told_where_nothing_has_changed():
    """Learning rates would be warmed up again, and logs have a line without a reason, when a stranger fails to join."""
    changes = Changes([ONE, TWO])
    found = told(changes)
    changes.go_on([ONE, TWO], 7)
    assert [each.why for each in found] == ["the job starts"]
    changes.go_on([ONE, TWO, THREE], 9)
    changes.go_on([ONE, THREE], 11)
    assert [(each.why, each.step, each.old_world, each.new_world) for each in found[1:]] == [
        ("rank 2 on a joined", 9, 2, 3),
        ("rank 1 on a was lost", 11, 3, 2),
    ]


def test_ranks_that_change_places_are_a_change():
    """A script that deals out samples by rank would go on with the old ones."""
    changes = Changes([ONE, TWO])
    found = told(changes)
    changes.go_on([Worker(member=1, rank=0, host="a"), Worker(member=0, rank=1, host="a")], 7)
    assert (found[1].why, found[1].lost, found[1].joined) == ("ranks have other places", (), ())


def test_whoever_asks_late_is_told_the_last_change():
    """A callback that is given after a loss would hear that the job starts, at a step that it does not start at."""
    changes = Changes([ONE, TWO])
    changes.go_on([ONE], 5)
    (change,) = told(changes)
    assert (change.why, change.step, change.old_world) == ("rank 1 on a was lost", 5, 2)
