"""Mistakes of users' builders: each is an error with the builder's name, the line, the variable, and what to do."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from hocket.artefacts.cluster import Cluster, Host
from hocket.artefacts.plan import Plan
from hocket.artefacts.profile import Gradient, Profile
from hocket.artefacts.promise import EXACT, ROUNDED, Promise
from hocket.errors import BuilderError, UsageError
from hocket.planning import within
from hocket.planning.asked import asked_for
from hocket.planning.built import BUCKETS_MAX, built
from hocket.planning.question import question_of
from hocket.planning.search import neutral_profile

STAR = Cluster(hosts=tuple(Host(name=name, bandwidth_bit_per_s=1e9) for name in "abcd"))
HEAD = "import random\nfrom hocket.planning import AllReduce, Builder, Gathered, Owned, Owner, Traced, TwoLevel\n"
SHAPES = {"fc.weight": (64, 100), "fc.bias": (64,), "steps": (), "words": (1000, 8)}


def profile() -> Profile:
    kinds = {"steps": "i64"}
    return neutral_profile(
        Gradient(
            name=name,
            shape=shape,
            dtype=kinds.get(name, "f32"),
            ready_s=0.0,
            needed_s=0.0,
            sparse=name == "words",
        )
        for name, shape in SHAPES.items()
    )


def plans(path: Path, text: str, promise: Promise = EXACT, cluster: Cluster = STAR) -> list[tuple[str, Plan]]:
    path.write_text(HEAD + text)
    asked = asked_for(f"{path}:Mine")
    return built(question_of(cluster, profile(), 4, promise, None), [asked])


def body(lines: str) -> str:
    """A builder that makes these lines' buckets."""
    indented = "\n".join(f"        {line}" for line in lines.splitlines())
    return f"class Mine(Builder):\n    def build(self, job):\n{indented}\n"


REST = "\nfor each in ('fc.bias', 'steps'):\n    yield job.bucket(each, job.ring)"
"""Buckets of the other variables."""

MISTAKES = {
    "forgets a variable": (
        body("yield job.bucket('fc.weight', job.ring)"),
        r"it forgets `fc\.bias`, `steps`\nhint: every variable of `job\.dense` is in a bucket",
        4,
    ),
    "names one twice": (
        body("yield job.bucket('fc.weight', job.ring)\nyield job.bucket('fc.weight', job.ring)" + REST),
        r"`fc\.weight`: elements 0 to 6400 are in this bucket, also in that of line 5",
        6,
    ),
    "names an unknown one": (
        body("yield job.bucket('fc.wait', job.ring)"),
        r"the model has no variable `fc\.wait`\nhint: it has fc\.weight",
        5,
    ),
    "an unknown rank owns": (
        body("yield job.bucket('fc.weight', job.owned([1, 7]))" + REST),
        r"`fc\.weight`: owner 7 is not of a world of 4\nhint: the job has ranks 0 to 3",
        5,
    ),
    "nobody owns": (
        body("yield job.bucket('fc.weight', job.owned({0: 0, 1: 0}))" + REST),
        r"`fc\.weight`: shares of owners: 0 or more, and one at least more than 0",
        5,
    ),
    "a share is no whole number": (
        body("yield job.bucket('fc.weight', job.owned({0: 0.3, 1: 0.7}))" + REST),
        r"`fc\.weight`: Expected `int`, got `float`.*\nhint: numbers of ranks and shares are whole numbers",
        5,
    ),
    "parts do not sum to the variable": (
        body(
            "yield job.bucket(('fc.weight', 0, 3000), job.owned([0]))\n"
            "yield job.bucket(('fc.weight', 3200, 6400), job.owned([1]))" + REST
        ),
        r"`fc\.weight`: elements 3000 to 3200 are in no bucket\nhint: its parts have 6400 elements together",
        5,
    ),
    "parts lack the end": (
        body("yield job.bucket(('fc.weight', 0, 3000), job.owned([0]))" + REST),
        r"`fc\.weight`: elements 3000 to 6400 are in no bucket",
        5,
    ),
    "parts overlap": (
        body(
            "yield job.bucket(('fc.weight', 0, 3000), job.owned([0]))\n"
            "yield job.bucket(('fc.weight', 2900, 6400), job.owned([1]))" + REST
        ),
        r"`fc\.weight`: elements 2900 to 3000 are in this bucket, also in that of line 5",
        6,
    ),
    "a part beyond the end": (
        body("yield job.bucket(('fc.weight', 0, 6401), job.ring)" + REST),
        r"\(0, 6401\) is no part of `fc\.weight`, which has 6400 elements",
        5,
    ),
    "several element types": (
        body("yield job.bucket(job.dense, job.ring)"),
        r"`fc\.(weight|bias)` is f32 and `steps` i64: a bucket has one element type\nhint: `job\.groups`",
        5,
    ),
    "a bucket of nothing": (body("yield job.bucket([], job.ring)"), r"a bucket without variables", 5),
    "no list of variables": (
        body("yield job.bucket(3, job.ring)"),
        r"3 is no variable, and no list of them",
        5,
    ),
    "no route": (body("yield job.bucket('fc.weight', 'ring')"), r"`fc\.weight`: 'ring' is no route", 5),
    "an unknown algorithm": (
        body("yield job.bucket('fc.weight', AllReduce(algorithm='rings'))"),
        r"`fc\.weight`: `rings` is not one of in_place, ring, ",
        5,
    ),
    "an algorithm that does not fit": (
        body(
            "yield job.bucket('fc.weight', AllReduce(algorithm='two_level', sizes=(2, 3)), order=[0, 1, 2, 3])"
        ),
        r"`fc\.weight`: groups of \[2, 3\] for 4 ranks",
        5,
    ),
    "an order that lacks a rank": (
        body("yield job.bucket('fc.weight', job.ring, order=[0, 1, 3])"),
        r"`fc\.weight`: its order lacks worker 2",
        5,
    ),
    "a rank as server": (
        body("from hocket.artefacts.plan import Served\nyield job.bucket('fc.weight', Served(servers=(0,)))"),
        r"`fc\.weight`: server 0 is a worker",
        6,
    ),
    "a codec under `exact`": (
        body("yield job.bucket('fc.weight', job.ring, codec='f16')"),
        r"`fc\.weight` has f16 on links: `exact` does not allow codec=f16\nhint: `--promise rounded`",
        5,
    ),
    "a policy under `exact`": (
        body("yield job.bucket('fc.weight', Traced(policy='int8'))"),
        r"`fc\.weight` goes by policy int8: `exact` does not allow loss=any\nhint: `--promise lossy`",
        5,
    ),
    "an unknown codec": (
        body("yield job.bucket('fc.weight', job.ring, codec='int8')"),
        r"`fc\.weight`: Invalid enum value 'int8'",
        5,
    ),
    "dense for a sparse variable": (
        body("yield job.bucket('fc.weight', job.ring)" + REST + "\nyield job.bucket('words', job.ring)"),
        r"`words` is sparse: its optimizer takes no dense gradient\nhint: route it by `job\.rows",
        8,
    ),
    "returns nothing": (body("pass"), r"`build` returns None\nhint: yield buckets", 4),
    "returns a number": (body("return 7"), r"`build` returns 7\nhint: yield buckets", 4),
    "yields nothing": (body("yield from ()"), r"it yields no bucket\nhint: yield buckets", 4),
    "yields routes": (
        body("yield job.ring"),
        r"it yields AllReduce\(algorithm='ring'.*, no bucket of this job\nhint: yield buckets",
        4,
    ),
    "has no build": (
        "class Mine(Builder):\n    chunk: int = 3\n",
        r"it has no `build`\nhint: def build",
        3,
    ),
    "raises": (
        body("def size(name):\n    return {}[name]\nyield job.bucket('fc.weight', size('fc.weight'))"),
        r"it raised KeyError: 'fc\.weight'\nhint: HOCKET_DEBUG=1",
        6,
    ),
    "asks for what a job has not": (
        body("yield job.bucket(job.denses, job.ring)"),
        r"it raised AttributeError: .*`?denses.*\nhint: it has dense$",
        5,
    ),
    "exits": (body("import sys\nsys.exit(3)\nyield"), r"it raised SystemExit\nhint: a builder returns", 6),
    "keeps something": (
        body("self.last = 3\nyield job.bucket('fc.weight', job.ring)"),
        r"it raised AttributeError: a builder keeps nothing: `last` is set on Mine",
        5,
    ),
    "makes another plan each time": (
        body(
            "for each in job.dense:\n"
            "    yield job.bucket(each, job.ring, chunk_bytes=random.randrange(1 << 10, 1 << 40))"
        ),
        r"asked twice, it makes two plans: bucket 0, with `.*`, differs\nhint: draw by `random\.Random\(1\)`",
        4,
    ),
    "too many buckets": (
        body(
            "at = 0\nwhile True:\n    yield job.bucket(('fc.weight', at % 6400, at % 6400 + 1), job.ring)\n    at += 1"
        ),
        rf"it makes more than built\.BUCKETS_MAX = {BUCKETS_MAX} buckets\nhint: several variables",
        7,
    ),
    "tries what is no setting": (
        "class Mine(Builder):\n    chunk: int = 3\n    tries = {'chunks': [1, 2]}\n" + body("yield")[20:],
        r"`tries` is \{'chunks': \[1, 2\]\}\nhint: lists of values by the names of settings, which are: chunk",
        3,
    ),
    "tries too much": (
        "class Mine(Builder):\n    a: int = 3\n    b: int = 3\n    tries = {'a': range(0)}\n"
        + body("yield")[20:],
        r"`tries` is ",
        3,
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_an_error_with_its_line(name: str, tmp_path: Path) -> None:
    """Broken: whoever writes a builder would search for a mistake, or train by a wrong plan."""
    text, wanted, line = MISTAKES[name]
    path = tmp_path / "mine.py"
    with pytest.raises(BuilderError, match=wanted) as caught:
        plans(path, text)
    said = str(caught.value)
    assert said.startswith("builder Mine")
    assert "\nhint: " in said
    assert (caught.value.file, caught.value.line) == (str(path), line)
    assert said.startswith(f"builder Mine, {path}:{line}: ")


def test_an_endless_builder_is_stopped_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Broken: `hocket plan` would hang without a word, and a job's search beside it would keep a core for ever."""
    monkeypatch.setenv("HOCKET_BUILDER_TIMEOUT_S", "1.5")
    monkeypatch.setattr(within, "QUIET_S", 0.3)
    path = tmp_path / "mine.py"
    with pytest.raises(BuilderError, match=r"it has made no plan in 1\.5 s\nhint: does it end\?") as caught:
        plans(path, body("at = 0\nwhile True:\n    at += 1\nyield"))
    assert caught.value.file == str(path)
    assert caught.value.line in (6, 7)
    assert "builder Mine has made no plan yet after" in caplog.text
    ended = [each for each in threading.enumerate() if each.name == "hocket-builder"]
    for thread in ended:
        thread.join(10)
    assert not any(each.is_alive() for each in ended)


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ("nowhere.py:Mine", "there is no builder file .*nowhere.py\nhint: a path from /"),
        ("mine.py:Yours", "mine.py has no builder Yours\nhint: it has Mine, Other"),
        ("mine.py", "which builder\\? There are: Mine, Other\nhint: write .*mine.py:CLASS"),
        ("mine.py:NoBuilder", "NoBuilder is no builder\nhint: a class that inherits from hocket.Builder"),
        ("mine.py:AllReduce", "AllReduce is no builder"),
        (
            "mine.py:Mine,chonk=3",
            "builder Mine, .*mine.py:5, has no setting `chonk`\nhint: its settings are size, chunk, how",
        ),
        (
            "mine.py:Mine,chunk=many",
            "builder Mine, .*mine.py:5, with chunk=many.*: Expected `int`, got `str`: setting `chunk`\nhint: the annotated",
        ),
        ("mine.py:Mine,chunk=0", "Expected `int` >= 1: setting `chunk`"),
        ("mine.py:Mine,how=tree", "Invalid enum value 'tree': setting `how`"),
        ("mine.py:Mine,chunk", "`chunk` is no setting\nhint: .*mine.py:Mine,SETTING=VALUE"),
        ("mine.py:Mine,", "builder Mine, .*mine.py:5, with no settings: .*missing required field `size`"),
        (
            "mine.py:Other,chunk=3",
            "builder Other, .*mine.py:9, has no setting `chunk`\nhint: it has no settings; a field",
        ),
        ("all-reduce,chunks=3", "builder all-reduce has no setting `chunks`\nhint: its settings are chunk"),
        ("chunked", "there is no builder `chunked`\nhint: ps, ps-load-balancing, .* or FILE.py"),
    ],
)
def test_wrong_names_and_settings(asked: str, wanted: str, tmp_path: Path) -> None:
    """Broken: a misspelt setting would have no effect, and nobody would know."""
    (tmp_path / "mine.py").write_text(
        f"{HEAD}from typing import Annotated, Literal\nfrom msgspec import Meta\n"
        "class Mine(Builder):\n    size: int\n    chunk: Annotated[int, Meta(ge=1)] = 3\n    how: Literal['ring'] = 'ring'\n"
        "class Other(Builder):\n    pass\nclass NoBuilder:\n    pass\n"
    )
    name = str(tmp_path / asked) if ".py" in asked else asked
    if "=" in asked and "Mine" in asked:
        name += ",size=1"
    with pytest.raises(UsageError, match=wanted):
        list(asked_for(name).variants())


@pytest.mark.parametrize(
    ("text", "wanted", "line"),
    [
        ("x = 1\nimport nothing_of_this_name\n", r"mine.py cannot be loaded, line 2: ModuleNotFoundError", 2),
        ("class Mine(\n", r"mine.py cannot be loaded, line 1: SyntaxError", 1),
        (
            "def f():\n    raise ValueError('no')\nf()\n",
            r"mine.py cannot be loaded, line 2: ValueError: no",
            2,
        ),
    ],
)
def test_a_file_that_fails_is_named_with_its_line(text: str, wanted: str, line: int, tmp_path: Path) -> None:
    """Broken: a typing error would be a traceback through Hocket."""
    path = tmp_path / "mine.py"
    path.write_text(text)
    with pytest.raises(BuilderError, match=wanted) as caught:
        asked_for(f"{path}:Mine")
    assert (caught.value.file, caught.value.line) == (str(path), line)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (body("yield job.bucket(random.Random(1).choice([]), job.ring)"), 5),
        ("class Other(Builder):\n    pass\nrandom.Random(1).choice([])\n", 5),
    ],
)
def test_lines_of_a_file_that_is_named_from_here_are_found(
    text: str, line: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken: a mistake in a call of another module would be shown in that module, of which the user has written nothing."""
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(HEAD + text)
    with pytest.raises(BuilderError) as caught:
        built(question_of(STAR, profile(), 4, EXACT, None), [asked_for("./mine.py:Mine")])
    assert caught.value.line == line
    assert caught.value.file is not None
    assert Path(caught.value.file).samefile("mine.py")


def test_a_file_without_builders_says_what_one_is(tmp_path: Path) -> None:
    """Broken: a forgotten base class would be a mystery."""
    (tmp_path / "mine.py").write_text("class Mine:\n    pass\n")
    with pytest.raises(
        UsageError, match=r"defines no builder\nhint: a class that inherits from hocket\.Builder"
    ):
        asked_for(str(tmp_path / "mine.py"))


def test_what_a_promise_allows_is_made(tmp_path: Path) -> None:
    """Broken: codecs would be refused whatever the promise."""
    text = body("yield job.bucket('fc.weight', job.ring, codec=job.promise.codec or 'none')" + REST)
    [(_, exact)] = plans(tmp_path / "mine.py", text)
    [(_, rounded)] = plans(tmp_path / "mine.py", text, ROUNDED)
    assert (exact.promise, rounded.promise) == ("exact", "rounded")
    assert {bucket.codec for bucket in exact.buckets} == {"none"}
    coded = next(bucket for bucket in rounded.buckets if bucket.codec == "f16")
    assert coded.variables == ("fc.weight",)
    assert coded.codec_links
    assert rounded.buckets[-1].variables == ("words",)  # left out, so it travels as rows


def test_owners_of_too_many_ranks_are_refused(tmp_path: Path) -> None:
    """Broken: a plan whose messages take minutes to count would be made."""
    cluster = Cluster(
        hosts=(
            Host(name="a", slots=150, bandwidth_bit_per_s=1e9),
            Host(name="b", slots=150, bandwidth_bit_per_s=1e9),
        )
    )
    (tmp_path / "mine.py").write_text(
        HEAD
        + body(
            "yield job.bucket(['fc.weight', 'fc.bias'], job.owned([0]))\nyield job.bucket('steps', job.ring)"
        )
    )
    question = question_of(cluster, profile(), 300, EXACT, None)
    with pytest.raises(BuilderError, match=r"owners among 300 ranks, more than built\.OWNED_RANKS_MAX"):
        built(question, [asked_for(str(tmp_path / "mine.py"))])
