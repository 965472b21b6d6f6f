"""Pairs of features that exclude one another, with reason and hint: code that refuses a pair takes its words from here.

`docs/refused.md` is generated from this table.
"""

from __future__ import annotations

from hocket.errors import UsageError

ELASTIC = "elastic jobs"
COMPILED = "compiled functions"
HELPERS = "helpers"
OWNERS = "updates by owners"
MERGED = "merged gradients"

_LOST = (
    "an elastic job cannot have {} yet: its state would be lost with a rank\n"
    "hint: leave one of them out; docs/elastic.md says what an elastic job can do"
)
_FINDS = "a job without a plan finds one for its network as it starts"
_BLIND = "times the parts of a step, and does not see into compiled functions\nhint:"

_ELASTIC = (
    "a search for a plan",
    "HOCKET_REORDER",
    "parameter servers",
    "helpers",
    "a profile of the script",
    "policy {policy}, which exchanges parameters",
    "a plan or a policy whose layers wait at gates",
    "a plan whose bucket {index} is neither an all-reduce nor a policy's, nor comes from owners as a mean",
    "a plan whose bucket {index} uses some cards alone",
    "a policy that calls {library}",
    "`join`",
    "a second model",
    "a second model, or a model that is distributed again",
    "gradients of compiled functions",
    "a model of Keras",
    'buffers="before_forward"',
)

REFUSED: dict[tuple[str, str], str] = {
    **{(ELASTIC, what): _LOST.format(what) for what in _ELASTIC},
    (ELASTIC, "sparse gradients"): (
        "an elastic job cannot have sparse gradients yet, and {variable} (bucket {index}) travels as rows: who "
        "has a part of them would be lost with a rank\n"
        "hint: sparse=False for its embedding, or a plan without rows; docs/elastic.md says what an elastic job can do"
    ),
    (COMPILED, "parameter servers"): (
        "parameter servers run the optimizer, and here it is a function of the script's\n"
        "hint: start the job without servers"
    ),
    (COMPILED, "HOCKET_STALENESS"): (
        "HOCKET_STALENESS is of parameter servers, and these run the optimizer, which here is a function of the script's\n"
        "hint: leave it unset"
    ),
    (COMPILED, HELPERS): (
        "helpers take part in each step of the optimizer, and here it is a function of the script's\n"
        "hint: start the job without helpers"
    ),
    (COMPILED, "HOCKET_SEARCH"): f"HOCKET_SEARCH {_BLIND} leave it unset: {_FINDS}",
    (COMPILED, "HOCKET_REORDER"): f"HOCKET_REORDER {_BLIND} leave it unset: {_FINDS}",
    (COMPILED, "`hocket profile`"): f"`hocket profile` {_BLIND} train without a profile: {_FINDS}",
    (COMPILED, "HOCKET_STEPS_MAX"): (
        "HOCKET_STEPS_MAX counts steps of the optimizer, and here it is a function of the script's\n"
        "hint: leave it unset, and end the script's own loop"
    ),
    (COMPILED, "merged or late gradients"): (
        "the plan has merged or late gradients, and each call of a compiled function returns the means of its own\n"
        "hint: `hocket plan` under the promise `exact`"
    ),
    (COMPILED, "sparse gradients"): (
        "the plan sends rows of a sparse gradient (bucket {index}), and compiled functions make dense ones\n"
        "hint: a plan without the route `gathered`"
    ),
    (COMPILED, OWNERS): (
        "the plan has owners that update (bucket {index}), and compiled functions update by themselves\n"
        "hint: `hocket plan --update replicas`"
    ),
    (COMPILED, "policies of parameters"): (
        "the policy exchanges parameters, which compiled functions hand on as values\nhint: a policy of gradients"
    ),
    (COMPILED, "gates"): (
        "the plan has gates, and a compiled function has no layers that could wait one by one\n"
        "hint: a plan whose overlap is `barrier`"
    ),
    (OWNERS, MERGED): (
        "--update owners with the promise `{promise}`: no rank has the whole mean, which turns need\n"
        "hint: leave out --update, or promise `rounded`"
    ),
    (
        HELPERS,
        OWNERS,
    ): "--helpers and --update owners: helpers have no optimizer\nhint: leave one of them out",
    (HELPERS, MERGED): (
        "--helpers with the promise `{promise}`: helpers take part in each iteration\n"
        "hint: leave out --helpers, or promise `rounded`"
    ),
    ("the flow engine", "buckets on some cards alone"): (
        "the flow engine sees a host's cards as one link, and buckets of the plan use some of them alone\n"
        "hint: the closed form tells cards apart: --fidelity closed-form"
    ),
}
"""Message by pair of features; names in braces are facts that the code adds."""


def refused(one: str, other: str, **facts: object) -> UsageError:
    """Return the error for a pair of features.

    >>> refused(HELPERS, OWNERS).summary
    '--helpers and --update owners: helpers have no optimizer'
    """
    return UsageError(REFUSED[one, other].format(**facts))
