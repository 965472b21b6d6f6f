"""What a job promises of its results, in words and in numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.artefacts.promise import LEVELS, Promise, allows, promise_of
from hocket.errors import UsageError
from hocket.settings import Settings


@given(
    st.one_of(
        st.just(Promise("exact")),
        st.builds(Promise, st.just("rounded"), codec=st.sampled_from(["f16", "bf16"])),
    )
)
def test_words_say_all_of_a_promise(promise: Promise) -> None:
    """Broken: ranks would train under another promise than the launcher was given."""
    environment = Settings(promise=str(promise)).to_environment()
    assert promise_of(Settings.from_environment(environment).promise or "") == promise


def test_levels_contain_those_before() -> None:
    """Broken: an exact plan would be refused where rounding is allowed."""
    for at, promised in enumerate(LEVELS):
        assert [allows(promised, level) for level in LEVELS] == [other <= at for other in range(len(LEVELS))]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("precise", "promise `precise`: known are exact, rounded"),
        ("rounded,codec=f8", "codec `f8`: known are f16, bf16"),
        ("rounded,bits=8", "`bits=8` is not one of codec="),
        ("merged,merge=x", "`merge` is a whole number, not 'x'"),
        ("exact,codec=bf16", "`exact` has no codec, `rounded` has"),
        ("rounded,delay=1", "`rounded` has no delay, `delayed` has"),
        ("merged,merge=0", "merge is at least 1"),
        ("lossy", "`lossy` is not available yet"),
        ("", "promise ``"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_name(text: str, said: str) -> None:
    """Broken: a slip of the keyboard would change what training computes."""
    with pytest.raises(UsageError, match=said):
        promise_of(text)
