"""Nothing that Python can do with a number gets at a statistic's value without a guard.

The property: when a statistic changes and all guards hold, then what was done with it comes out the same. What comes out is
compared as far as a handler can see it.
"""

import array
import builtins
import copy
import decimal
import fractions
import functools
import io
import json
import math
import operator
import pickle
import statistics
import struct
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hocket.errors import PolicyError
from hocket.policy.observed import Assumptions, Observed
from tests.support import drawn

CASES = drawn.cases(10)
"""Drawn values of each use, beside those that are written there."""

VALUES = st.one_of(
    st.sampled_from(
        [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.0, 2.5, 3.0, 10.0, math.inf, -math.inf, math.nan, 1e300]
    ),
    st.floats(-20, 20),
    st.floats(),
)

(OTHER_NAN,) = struct.unpack("d", struct.pack("Q", 0x7FF8_0000_0000_0001))

BINARY = (
    *(
        "add",
        "sub",
        "mul",
        "truediv",
        "floordiv",
        "mod",
        "pow",
        "matmul",
        "and_",
        "or_",
        "xor",
        "lshift",
        "rshift",
    ),
    *("lt", "le", "gt", "ge", "eq", "ne", "is_", "is_not", "concat", "contains"),
    *("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow"),
)
UNARY = ("neg", "pos", "abs", "not_", "truth", "index", "invert", "length_hint")
BUILTINS = (
    *(
        "abs",
        "ascii",
        "bin",
        "bool",
        "bytes",
        "chr",
        "complex",
        "dict",
        "divmod",
        "enumerate",
        "float",
        "format",
    ),
    *(
        "frozenset",
        "hash",
        "hex",
        "int",
        "iter",
        "len",
        "list",
        "max",
        "min",
        "oct",
        "ord",
        "pow",
        "range",
        "repr",
    ),
    *("reversed", "round", "set", "slice", "sorted", "str", "sum", "tuple"),
)
MATH = tuple(name for name in dir(math) if callable(getattr(math, name)) and not name.startswith("_"))
OF_NUMPY = (
    *(
        "sqrt",
        "exp",
        "log",
        "sin",
        "abs",
        "sign",
        "floor",
        "isnan",
        "isfinite",
        "negative",
        "square",
        "round",
    ),
    *("asarray", "array", "float32", "float64", "int64", "mean", "sum", "zeros", "ones", "atleast_1d"),
)
OF_NUMPY_TWO = ("add", "multiply", "divide", "power", "maximum", "hypot", "less", "equal", "isclose")


def each(label, module, names, call):
    """`call(function, x)` with every function of those names."""
    return {label.format(name): functools.partial(call, getattr(module, name)) for name in names}


USES = {
    **each("x {} 2", operator, BINARY, lambda f, x: f(x, 2)),
    **each("2 {} x", operator, BINARY, lambda f, x: f(2, x)),
    **each("2.5 {} x", operator, BINARY, lambda f, x: f(2.5, x)),
    **each("x {} x", operator, BINARY, lambda f, x: f(x, x)),
    **each("True {} x", operator, BINARY, lambda f, x: f(True, x)),
    **each("half {} x", operator, BINARY, lambda f, x: f(fractions.Fraction(1, 2), x)),
    **each("x {} decimal", operator, BINARY, lambda f, x: f(x, decimal.Decimal(2))),
    **each("x {} 2j", operator, BINARY, lambda f, x: f(x, 2j)),
    **each("x {} f64", operator, BINARY, lambda f, x: f(x, np.float64(2))),
    **each("f32 {} x", operator, BINARY, lambda f, x: f(np.float32(2), x)),
    **each("array {} x", operator, BINARY, lambda f, x: f(np.arange(3.0), x)),
    **each("operator.{}", operator, UNARY, lambda f, x: f(x)),
    **each("{}", builtins, BUILTINS, lambda f, x: f(x)),
    **each("{} of two", builtins, BUILTINS, lambda f, x: f(x, 2)),
    **each("{} of a list", builtins, BUILTINS, lambda f, x: f([x, 2.0, x + 1])),
    **each("math.{}", math, MATH, lambda f, x: f(x)),
    **each("math.{} of two", math, MATH, lambda f, x: f(x, 2.0)),
    **each("math.{} of a list", math, MATH, lambda f, x: f([x, 2.0])),
    **each(
        "statistics.{}",
        statistics,
        [name for name in statistics.__all__ if name[0].islower()],
        lambda f, x: f([x, 2.0, x * 2, 1.0]),
    ),
    **each("np.{}", np, OF_NUMPY, lambda f, x: f(x)),
    **each("np.{} of two", np, OF_NUMPY_TWO, lambda f, x: f(x, 2.0)),
    "round to tenths": lambda x: round(x, 1),
    "round to tens": lambda x: round(x, -1),
    "f-string": lambda x: f"{x}",
    "f-string with digits": lambda x: f"{x:.1f}",
    "f-string repr": lambda x: f"{x!r:>20}",
    "percent": functools.partial(operator.mod, "%d"),
    "percent s": lambda x: operator.mod("%s %.2f", (x, x)),
    "format map": lambda x: f"{x:e}",
    "print": lambda x: _printed(x) + ".",
    "Fraction": fractions.Fraction,
    "Decimal": decimal.Decimal,
    "pickle": pickle.dumps,
    "pickle 0": lambda x: pickle.dumps([x], 0),
    "json": json.dumps,
    "struct": lambda x: struct.pack("d", x),
    "array": lambda x: array.array("d", [x]).tobytes(),
    "bytearray": bytearray,
    "getstate": lambda x: x.__getstate__(),
    "reduce": lambda x: x.__reduce__(),
    "copy": lambda x: float(copy.copy(x)),
    "deepcopy": lambda x: float(copy.deepcopy([x])[0]),
    "as_integer_ratio": lambda x: x.as_integer_ratio(),
    "is_integer": lambda x: x.is_integer(),
    "hex of float": lambda x: x.hex(),
    "real": lambda x: x.real,
    "imag": lambda x: x.imag,
    "conjugate": lambda x: x.conjugate(),
    "in a tuple": lambda x: x in (1.0, 2.0),
    "in a set": lambda x: x in {1.0, 2.0},
    "a key": {1.0: "a", 2: "b"}.get,
    "as a key": lambda x: 2.0 in {x: 1},
    "counted": [1.0, 2.0, 2.0].count,
    "found": [1.0, 2.0].index,
    "match": lambda x: _matched(x) + ".",
    "and": lambda x: bool(x and 5),
    "or": lambda x: (x or 5) == 5,
    "chained": lambda x: 0 < x < 2,
    "conditional": lambda x: "a" if x else "b",
    "while": lambda x: sum(1 for step in range(9) if step < x),
    "keyword": lambda x: max([], default=x) > 1,
    "default": lambda x: functools.partial(operator.gt, x * 2)(3),
    "star": lambda x: max(*[x, 2.0]) > 2,
    "closure": lambda x: [f() for f in [lambda: x > 1]],
    "sorted by": lambda x: sorted([1, 5, 3], key=lambda each: abs(each - x)),
    "isinstance": lambda x: isinstance(x, float | int),
    "caught": lambda x: _caught(x) * 2,
    "sliced": lambda x: [1, 2, 3][: int(abs(x)) if abs(x) < 9 else 0],
    "index": lambda x: [1, 2, 3][x],
    "repeated": lambda x: "a" * x,
    "deep": lambda x: sum([x] * 300) > 10,
    "its class": lambda x: x.__class__(x),
    "bool in arithmetic": lambda x: 1 + bool(x - 1),
    "clip": lambda x: min(max(x, 0.0), 1.0),
}


def _matched(x):
    match x:
        case 1.0:
            return "one"
        case float() | int():
            return "a number"
    return "else"


def _printed(x):
    file = io.StringIO()
    print(x, file=file)
    return file.getvalue()


def _caught(x):
    try:
        return type(1 / (x - 1)) is type(None)
    except ZeroDivisionError:
        return "caught"


def seen(result, numbers=None):
    """What a handler can see of a result; statistics are put into `numbers`."""
    if isinstance(result, Observed):
        if numbers is not None:
            numbers.append(result)
        return Observed
    if isinstance(result, dict | list | tuple | set | frozenset):
        items = result.items() if isinstance(result, dict) else result
        return type(result).__name__, [seen(each, numbers) for each in items]
    if isinstance(result, np.ndarray) and result.dtype == object:
        return "array", [seen(each, numbers) for each in result.ravel()]
    if isinstance(result, Iterator):
        return type(result).__name__, [seen(each, numbers) for each in result]
    return type(result).__name__, repr(result)


def do(use, value):
    """What a use of a statistic of that value shows, its guards, and the statistics that came out of it."""
    assumptions = Assumptions([{"x": [value]}])
    number = assumptions.observe(lambda snapshot: snapshot[0]["x"][0])
    numbers = []
    try:
        result = seen(use(number), numbers)
    except Exception as error:  # whatever it is, a handler can catch it
        result = "raised", type(error).__name__
    return result, assumptions, numbers


def holds(assumptions, value):
    return all(guard.holds([{"x": [value]}]) for guard in assumptions.guards)


@pytest.fixture(autouse=True)
def _quiet(capsys):
    with np.errstate(all="ignore"):
        yield


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", USES)
def test_no_use_leaks(name):
    """A program would be made by a number that nobody watches."""

    @settings(max_examples=CASES, database=None)
    @given(VALUES, VALUES)
    @example(2.0, 7.3)
    @example(1.0, 2.0)
    @example(1.0, -0.0)
    @example(0.0, -0.0)
    @example(-3.5, math.nan)
    @example(math.nan, -math.nan)
    @example(math.nan, OTHER_NAN)
    def check(before, after):
        result, assumptions, numbers = do(USES[name], before)
        assert holds(assumptions, before), "its own guards"
        # A statistic that came out of it has to be watched like the one that went in.
        shown = [repr(each) for each in numbers]
        if holds(assumptions, after):
            later, _, then = do(USES[name], after)
            assert later == result
            assert [repr(each) for each in then] == shown

    check()


ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod")
OPERATIONS = st.sampled_from(
    [
        *(getattr(operator, name) for name in ARITHMETIC),
        *each("{}", operator, ARITHMETIC, lambda f, x, y: f(y, x)).values(),
        lambda x, y: -x,
        lambda x, y: abs(x),
        min,
        lambda x, y: max(y, x),
        lambda x, y: round(x, 1) + y,
    ]
)


@settings(max_examples=300)
@given(
    st.lists(st.tuples(OPERATIONS, st.one_of(st.none(), st.integers(-3, 3), st.floats(-9, 9))), max_size=6),
    VALUES,
    VALUES,
    st.sampled_from([float, int, bool, str, lambda x: x > 1, lambda x: f"{x:.1f}"]),
)
def test_chains_of_operations_are_those_of_floats_and_watched(chain, before, after, last):
    """Arithmetic would come out otherwise than with a float, or lose its origin on the way."""

    def use(number):
        result = number
        for operation, operand in chain:
            result = operation(result, number if operand is None else operand)
        return last(result)

    result, assumptions, _ = do(use, before)
    assert holds(assumptions, before)
    try:
        plain = seen(use(before))
    except Exception as error:  # the same error is the same behaviour
        plain = "raised", type(error).__name__
    assert result == plain
    if holds(assumptions, after):
        assert do(use, after)[0] == result


BY_OBJECT = (
    *("__class__", "__delattr__", "__dir__", "__doc__", "__getattribute__", "__init_subclass__", "__new__"),
    *("__setattr__", "__sizeof__", "__subclasshook__"),
)
"""What every object has, and what says nothing of a value."""


def test_every_method_of_numbers_is_ours_or_missing():
    """A method of a later Python would read the number behind our back."""
    for name in {*dir(float), *dir(int), *dir(complex)}:
        assert name in vars(Observed) or name not in dir(object) or name in BY_OBJECT, name
    assert Observed.__bases__ == (object,), "C code reads a float's value without asking"


def test_arithmetic_alone_is_no_decision():
    """A policy would be traced again although nothing in its program depends on the number."""
    _, assumptions, _ = do(lambda x: [10 - x, x + 1, -x, abs(x), 2 * x - x, sum([x, x])], 2.0)
    assert assumptions.guards == []


def test_statistics_are_made_by_statistics_alone():
    """A constant in the disguise of a statistic would be watched for nothing, and its class would not tell."""
    with pytest.raises(PolicyError, match=r"test_observed\.py:\d+: turns a number into a statistic"):
        Observed(1.0)
