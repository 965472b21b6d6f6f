"""What a job promises of its results, in words and in numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.artefacts.needs import Need, unkept
from hocket.artefacts.promise import WORDS, Promise, promise_of
from hocket.errors import UsageError
from hocket.settings import Settings

AMOUNTS = {
    "codec": st.sampled_from(["f16", "bf16"]),
    "merge": st.integers(1, 9),
    "delay": st.integers(0, 9),
    "loss": st.just("any"),
    "local": st.integers(1, 9),
    "epsilon": st.sampled_from([0.01, 0.1]),
}


@given(
    st.builds(
        lambda base, amounts: Promise(base, **amounts),
        st.sampled_from([*WORDS]),
        st.fixed_dictionaries({}, optional=AMOUNTS),
    )
)
def test_words_say_all_of_a_promise(promise: Promise) -> None:
    """Broken: ranks would train under another promise than the launcher was given."""
    environment = Settings(promise=str(promise)).to_environment()
    assert promise_of(Settings.from_environment(environment).promise or "") == promise


@pytest.mark.parametrize(
    "words",
    [
        "exact",
        "rounded",
        "rounded,codec=bf16",
        "merged,merge=2",
        "delayed,merge=2,delay=1",
        "uncorrected,uncorrected=2",
        "lossy",
    ],
)
def test_words_of_users_are_those_of_messages(words: str) -> None:
    """Broken: what earlier jobs learned under a promise would not be found again."""
    assert str(promise_of(words)) == words


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        ("exact", set()),
        ("rounded", {"codec"}),
        ("merged,merge=2", {"codec", "merge"}),
        ("merged", {"codec"}),
        ("delay=1", {"delay"}),
        ("codec=f16,delay=1", {"codec", "delay"}),
        ("delayed,delay=1,codec=bf16", {"delay"}),
        ("exact,loss=any", {"loss"}),
        ("lossy,local=4", {"codec", "loss", "local"}),
    ],
)
def test_each_allowance_is_one_of_its_own(words: str, allowed: set[str]) -> None:
    """Broken: a job would get a codec, late gradients or a lossy policy that nobody has allowed."""
    amounts = {"codec": "f16", "merge": 2, "delay": 1, "loss": "any", "local": 4}
    found = {name for name, amount in amounts.items() if promise_of(words).allows(name, amount)}
    assert found == allowed
    for name, amount in amounts.items():
        said = [*unkept(promise_of(words), [Need(name, amount, "this")])]
        expected = f"this: `{promise_of(words)}` does not allow {name}={amount}"
        assert said == ([] if name in allowed else [expected])


def test_the_word_of_a_plan_allows_any_amount() -> None:
    """Broken: plans of the planner could not be read."""
    assert [*unkept("delayed", [Need("delay", 9, "a"), Need("codec", "bf16", "b")])] == []
    assert [*unkept("merged", [Need("delay", 1, "a")])] == ["a: `merged` does not allow delay=1"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("precise", "promise `precise`: known are exact, rounded"),
        ("rounded,codec=f8", "promise: codec `f8`: known are f16, bf16"),
        ("rounded,bits=8", "`bits=8` is not one of codec="),
        ("merged,merge=x", "`merge` is a whole number, not 'x'"),
        ("loss=some", "promise: loss `some`: known are any"),
        ("merged,merge=0", "merge and local are at least 1"),
        ("delay=-1", "delay and uncorrected at least 0"),
        ("local=0", "local"),
        ("", "promise ``"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_name(text: str, said: str) -> None:
    """Broken: a slip of the keyboard would change what training computes."""
    with pytest.raises(UsageError, match=said):
        promise_of(text)
