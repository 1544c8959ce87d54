"""Decoders of one's own: Python functions from files and from installed packages.

A function is marked with `decoder`. What travels to Spark's workers is a file's text, or the name of an entry point, so
a file need not be on them; a package must be.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from hashlib import sha256
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from host.release import release
from wire.errors import WireError
from wire.topics import check_topic_filter

ENTRY_POINTS = "holdfast.decoders"
"""The group of entry points in which installed packages offer decoders."""
NUMBERS = "numbers:"
"""Before a topic filter, it stands for the decoder that makes numbers of the texts in messages of these topics."""
_DECODE_NUMBERS = "cloud.transforms.decoders:decode_numbers"
_MARK = "holdfast_decoder"
_Function = TypeVar("_Function", bound=Callable[..., Any])


class BadDecoder(Exception):
    """A decoder of one's own cannot be used. The text names it and says why."""


class Mark(NamedTuple):
    """The messages that a decoder takes, and whether it takes many at once."""

    topic_filter: str
    content_type: str | None
    whole_batches: bool


class OwnDecoder(NamedTuple):
    """A decoder in a form that Spark's workers can load. `source` is a file's text; None for an entry point."""

    name: str
    where: str
    source: str | None
    mark: Mark


def decoder(
    topic_filter: str, *, content_type: str | None = None, whole_batches: bool = False
) -> Callable[[_Function], _Function]:
    """Marks a function as the decoder of messages.

    topic_filter: an MQTT topic filter; the decoder takes messages whose topic matches it.
    content_type: if given, the decoder takes messages with this content type alone; parameters do not matter.
    whole_batches: False for a function `(Message) -> Iterable[Record]`, which may raise any error. True for a function
        `(list[Message]) -> list[list[Record]]`, with a list for each message in their order; if it raises an error, it
        is called again with each message by itself.
    Raises ValueError for what is no topic filter.
    """
    try:
        check_topic_filter(topic_filter)
    except WireError as error:
        raise ValueError(f"{topic_filter!r} is no topic filter: {error}") from None
    mark = Mark(topic_filter, content_type.strip().lower() if content_type else None, whole_batches)

    def add(function: _Function) -> _Function:
        setattr(function, _MARK, mark)
        return function

    return add


def find_decoders(files: Iterable[Path | str] = ()) -> tuple[OwnDecoder, ...]:
    """Returns the decoders of the files in their order, then those of installed packages in the order of their names.

    files: also `numbers:FILTER`, for the decoder that makes numbers of texts.
    Raises BadDecoder for a file or an entry point that cannot be loaded, or has no decoder, and for a bad filter.
    """
    found: list[OwnDecoder] = []
    for given in map(str, files):
        if given.startswith(NUMBERS):
            found.append(_numbers(given))
            continue
        path = Path(given)
        try:
            source = path.read_text()
            names = vars(_load_file(str(path), source))
        except (Exception, SystemExit) as error:
            raise BadDecoder(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
        marked = [(name, mark) for name, item in names.items() if (mark := getattr(item, _MARK, None))]
        if not marked:
            raise BadDecoder(f"{path} has no function that is marked with @decoder(...)")
        found += [OwnDecoder(name, str(path), source, mark) for name, mark in marked]
    for point in sorted(entry_points(group=ENTRY_POINTS)):
        try:
            mark = getattr(point.load(), _MARK, None)
        except (Exception, SystemExit) as error:
            raise BadDecoder(f"entry point {point.name} cannot be loaded: {type(error).__name__}: {error}") from error
        if mark is None:
            raise BadDecoder(f"entry point {point.name}: {point.value} is not marked with @decoder(...)")
        found.append(OwnDecoder(point.name, point.value, None, mark))
    return tuple(found)


def _numbers(given: str) -> OwnDecoder:
    try:
        check_topic_filter(topic_filter := given.removeprefix(NUMBERS))
    except WireError as error:
        raise BadDecoder(f"{given}: {topic_filter!r} is no topic filter: {error}") from None
    return OwnDecoder(given, _DECODE_NUMBERS, None, Mark(topic_filter, None, whole_batches=False))


def fingerprint(own: Iterable[OwnDecoder]) -> str:
    """Names all that decides how payloads are decoded: the version of Holdfast, and the decoders of one's own."""
    releases = {
        (point.name, point.value): point.dist.version for point in entry_points(group=ENTRY_POINTS) if point.dist
    }
    parts = [release(), *(str((one.name, one.source or releases.get((one.name, one.where)))) for one in own)]
    return sha256("\n".join(parts).encode()).hexdigest()


def load_function(own: OwnDecoder) -> Callable[..., Any]:
    """Returns the function of a decoder, in whichever process this is. Raises whatever loading it raises."""
    if own.source is None:
        return _load_entry_point(own.name, own.where)
    function: Callable[..., Any] = getattr(_load_file(own.where, own.source), own.name)
    return function


def first_match(own: Sequence[OwnDecoder], matches: Callable[[str], bool], kind: str) -> OwnDecoder | None:
    """Returns the first decoder whose filter `matches` the topic and whose content type, if it has one, is `kind`."""
    for one in own:
        if one.mark.content_type in (None, kind) and matches(one.mark.topic_filter):
            return one
    return None


@lru_cache(maxsize=64)
def _load_entry_point(name: str, value: str) -> Callable[..., Any]:
    function: Callable[..., Any] = EntryPoint(name, value, ENTRY_POINTS).load()
    return function


@lru_cache(maxsize=64)
def _load_file(path: str, source: str) -> ModuleType:
    """Runs a file's text as a module of its own. It is among the imported modules, as dataclasses need it."""
    module = ModuleType(f"holdfast_decoder_{sha256(source.encode()).hexdigest()[:16]}")
    module.__file__ = path
    sys.modules[module.__name__] = module
    try:
        exec(compile(source, path, "exec"), vars(module))
    except BaseException:
        del sys.modules[module.__name__]
        raise
    return module
