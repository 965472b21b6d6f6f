"""Builders that are asked for: by name, from a file or as objects, with settings given and others to try."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

import msgspec

from hocket import typed, user_classes
from hocket.errors import BuilderError, UsageError
from hocket.planning.builder import Builder, Value
from hocket.planning.builders import BUILDERS, NAMED

VARIANTS_MAX = 64
"""Limit of settings of one builder that are tried: a plan is made and predicted with each."""

Chosen = str | Builder | type[Builder]
"""Builder, its class, or its name with settings."""

FILE = re.compile(r"(?P<file>.*?\.py(:\w+)?)(?P<rest>,.*)?", re.DOTALL)


@dataclass(frozen=True)
class Asked:
    """Builder and its settings. `title`: its name for people; `file`: the user's, if it is known."""

    title: str
    kind: type[Builder]
    given: Mapping[str, Value | str] = field(default_factory=dict)
    file: str | None = None

    @property
    def of_user(self) -> bool:
        """False for a ready-made builder."""
        return self.kind not in NAMED.values()

    @cached_property
    def defined(self) -> tuple[str, int] | None:
        """File and line of a user's class, as far as they are known."""
        try:
            at = None if self.file is None else (self.file, inspect.getsourcelines(self.kind)[1])
        except (OSError, TypeError):  # made in an interpreter
            at = None
        return at if self.of_user else None

    def variants(self) -> Iterator[Builder]:
        """Yield the builder with the given settings, and each of the values to try for the others.

        UsageError: it has no such setting, a value is of another type, or there are too many to try.
        """
        tries = self.kind.tries
        if not isinstance(tries, Mapping) or not all(
            name in self.kind.__struct_fields__ and isinstance(values, list | tuple) and values
            for name, values in tries.items()
        ):
            known = ", ".join(self.kind.__struct_fields__) or "none"
            raise self.refusal(
                f"`tries` is {tries!r}", f"lists of values by the names of settings, which are: {known}"
            )
        left = {name: values for name, values in tries.items() if name not in self.given}
        count = 1
        for values in left.values():
            count *= len(values)
        if count > VARIANTS_MAX:
            raise self.refusal(
                f"`tries` has {count} settings to try, more than asked.VARIANTS_MAX = {VARIANTS_MAX}",
                "fewer values, or give some of them",
            )
        for values in product(*left.values()):
            yield self._with({**self.given, **dict(zip(left, values, strict=True))})

    def label(self, builder: Builder) -> str:
        """Return the title of a plan: the builder's, with the settings that were given or tried; of a ready-made one without given
        settings, the name alone."""
        if not self.of_user and not self.given:
            return self.title
        named = [name for name in builder.settings if name in self.given or name in self.kind.tries]
        return ",".join([self.title, *(f"{name}={builder.settings[name]}" for name in named)])

    def refusal(self, what: str, hint: str, at: tuple[str, int] | None = None) -> BuilderError:
        """Make the error about this builder, ready to raise. `at`: the user's file and line; default: those of the class."""
        at = at or self.defined
        file, line = at or (self.file, None)
        where = "" if at is None else f", {file}:{line}"
        return BuilderError(f"builder {self.title}{where}: {what}\nhint: {hint}", file=file, line=line)

    def _with(self, settings: Mapping[str, Value | str]) -> Builder:
        known = self.kind.__struct_fields__
        where = "" if self.defined is None else ", {}:{},".format(*self.defined)
        unknown = next((name for name in settings if name not in known), None)
        if unknown is not None:
            names = (
                f"its settings are {', '.join(known)}"
                if known
                else f"it has no settings; a field with a type makes one, such as `{unknown}: int = 8`"
            )
            raise UsageError(f"builder {self.title}{where} has no setting `{unknown}`\nhint: {names}")
        try:
            return typed.of_builtins(dict(settings), self.kind, strict=False)
        except (msgspec.ValidationError, TypeError, ValueError) as error:
            words = re.sub(r" - at `\$\.(\w+)`", r": setting `\1`", str(error))
            values = ", ".join(f"{name}={value}" for name, value in settings.items()) or "no settings"
            hint = "the annotated fields of the class say which values its settings may have"
            raise UsageError(f"builder {self.title}{where} with {values}: {words}\nhint: {hint}") from None
        except NameError as error:
            raise self.refusal(
                f"its settings have a type that is not known: {error}", "import it in the file"
            ) from None


def asked_for(builder: Chosen) -> Asked:
    """Read NAME or FILE.py[:CLASS], with settings after commas, `NAME,SETTING=VALUE`; or take a builder.

    Of a builder, all settings are given; of a class, none.

    Raises UsageError if there is none, BuilderError if its file cannot be loaded.

    >>> asked_for("all-reduce,chunk=64").given
    {'chunk': '64'}
    """
    if isinstance(builder, str):
        return _named(builder)
    kind = builder if isinstance(builder, type) else type(builder)
    if not issubclass(kind, Builder):
        raise UsageError(f"{builder!r} is no builder\nhint: a class that inherits from hocket.Builder")
    given = builder.settings if isinstance(builder, Builder) else {}
    name = next((name for name, each in NAMED.items() if each is kind), kind.__name__)
    return Asked(name, kind, given, _file(kind))


def look(text: str) -> None:
    """Check that a builder exists; of a ready-made one, also its settings. A file is not run. Errors as for `asked_for`."""
    file, _ = split(text)
    if file:
        user_classes.look(file, of=Builder, what="builder", known=list(NAMED), refuse=BuilderError)
    else:
        for _ in asked_for(text).variants():
            pass


def is_builder(text: str) -> bool:
    """Return whether a text names a builder: one from a file, or a ready-made one, whatever its settings."""
    return text.partition(",")[0] in NAMED or bool(split(text)[0])


def split(text: str) -> tuple[str, str]:
    """Return the file, with its class, and the rest of a builder's name; without a file, an empty one.

    >>> split("a,b/mine.py:Chunked,chunk=64"), split("ps,fused_bytes=0")
    (('a,b/mine.py:Chunked', ',chunk=64'), ('', 'ps,fused_bytes=0'))
    """
    found = FILE.fullmatch(text)
    return ("", text) if found is None else (found["file"], found["rest"] or "")


def _named(text: str) -> Asked:
    file, rest = split(text)
    name, _, words = text.partition(",")
    if file:
        name, words = file, rest.removeprefix(",")
    elif name not in NAMED:
        raise UsageError(f"there is no builder `{name}`\nhint: {', '.join(NAMED)}, or FILE.py[:CLASS]")
    given: dict[str, Value | str] = {}
    for word in words.split(",") if words else ():
        setting, equals, value = word.partition("=")
        if not equals or not setting.strip():
            raise UsageError(f"--builder {text}: `{word}` is no setting\nhint: {name},SETTING=VALUE")
        given[setting.strip()] = value.strip()
    if not file:
        return Asked(name, NAMED[name], given)
    kind = user_classes.chosen(name, Builder, what="builder", known=list(NAMED), refuse=BuilderError)
    return Asked(kind.__name__, kind, given, _file(kind))


def _file(kind: type[Builder]) -> str | None:
    """Return the file of a class as its lines name it, which may be another way to write the path that was given."""
    try:
        return inspect.getsourcefile(kind)
    except (OSError, TypeError):  # made in an interpreter
        return None


READY_MADE = tuple(Asked(name, kind) for name, kind in BUILDERS.items())
