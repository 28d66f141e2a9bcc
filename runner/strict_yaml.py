"""YAML, read strictly: mappings, lists and text, and none of what makes YAML dangerous. Pure.

Every scalar is text, as Prometheus takes it (``no`` is no boolean and ``0x10`` no number); one that is empty,
``~`` or ``null`` without quotes is None. Refused: tags of any kind, a key twice, keys that are not text,
nesting beyond ``MAX_DEPTH``, more than ``MAX_NODES`` values with each use of an alias counted as a whole
(so that nine lines cannot become a billion values), an alias to what is not finished. ``<<`` merges.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from runner.strict_json import StrictJsonError, check_text

MAX_DEPTH: Final = 32
MAX_NODES: Final = 500_000

_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Only its parser is used, never what builds values: the one in C where there is one."""


class StrictYamlError(ValueError):
    """The text is no YAML that we accept. ``message`` says what is wrong and quotes nothing; ``line`` is from 1."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(f"{message} (line {line})")
        self.message, self.line = message, line


class YamlMapping(dict[str, Any]):
    """A mapping, and the line that it begins on."""

    line: int = 1


@dataclass(frozen=True, slots=True)
class _Node:
    """A finished value: how many values it holds, itself too, and how many levels."""

    value: Any
    size: int = 1
    height: int = 0
    merges: bool = False
    """It is a bare ``<<``, which merges where it is a key."""


@dataclass(slots=True)
class _Open:
    """A mapping or list whose end has not come."""

    container: YamlMapping | list[Any]
    line: int
    anchor: str | None
    size: int = 1
    height: int = 1
    key: _Node | None = None
    merged: dict[str, Any] = field(default_factory=dict)


def documents(text: str) -> Iterator[Any]:
    """The documents in ``text``, each as mappings (``YamlMapping``), lists, text and None.

    Raises ``StrictYamlError`` and nothing else.
    """
    building = _Building()
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            if isinstance(event, yaml.DocumentStartEvent):
                building = _Building()
            elif isinstance(event, yaml.DocumentEndEvent):
                yield building.value
            elif isinstance(event, yaml.NodeEvent | yaml.CollectionEndEvent):
                building.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise StrictYamlError(_said(error.problem), 1 if mark is None else mark.line + 1) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise StrictYamlError("a character that YAML does not allow", line) from None


def _said(problem: str | None) -> str:
    """The parser's words. They may quote a character or a name of the text: no more than a little of it."""
    return "".join(char if char.isprintable() else "?" for char in (problem or "a syntax error"))[:100]


class _Building:
    """One document, as its events come."""

    def __init__(self) -> None:
        self.value: Any = None
        self._open: list[_Open] = []
        self._anchors: dict[str, _Node] = {}

    def take(self, event: Any) -> None:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            node = self._anchors.get(event.anchor)
            if node is None:
                raise StrictYamlError("an alias to what is not there, or not finished", line)
            self._put(node, line)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._close(line)
        elif event.tag is not None:
            raise StrictYamlError("a tag; none is allowed", line)
        elif isinstance(event, yaml.ScalarEvent):
            self._anchored(event.anchor, self._scalar(event, line), line)
        else:
            self._begin(event, line)

    def _scalar(self, event: Any, line: int) -> _Node:
        plain = event.implicit[0]
        if plain and event.value in _NULLS:
            return _Node(None)
        try:
            check_text(event.value)
        except StrictJsonError:
            raise StrictYamlError("U+0000 or half of a surrogate pair in the text", line) from None
        return _Node(event.value, merges=plain and event.value == "<<")

    def _begin(self, event: Any, line: int) -> None:
        if len(self._open) >= MAX_DEPTH:
            raise StrictYamlError(f"nested deeper than {MAX_DEPTH}", line)
        container: YamlMapping | list[Any] = []
        if isinstance(event, yaml.MappingStartEvent):
            container = YamlMapping()
            container.line = line
        self._open.append(_Open(container, line, event.anchor))

    def _close(self, line: int) -> None:
        ended = self._open.pop()
        if isinstance(ended.container, YamlMapping):
            for key, value in ended.merged.items():
                ended.container.setdefault(key, value)
        self._anchored(ended.anchor, _Node(ended.container, ended.size, ended.height), line)

    def _anchored(self, anchor: str | None, node: _Node, line: int) -> None:
        if anchor is not None:
            self._anchors[anchor] = node
        self._put(node, line)

    def _put(self, node: _Node, line: int) -> None:
        """Give a finished value to what it stands in."""
        if not self._open:
            self.value = node.value
            return
        around = self._open[-1]
        around.size += node.size
        around.height = max(around.height, node.height + 1)
        if around.size > MAX_NODES:
            raise StrictYamlError(f"more than {MAX_NODES} values, aliases counted where they are used", line)
        if len(self._open) + node.height > MAX_DEPTH:
            raise StrictYamlError(f"nested deeper than {MAX_DEPTH}", line)
        if isinstance(around.container, list):
            around.container.append(node.value)
        elif around.key is None:
            around.key = self._key(node, around, line)
        elif around.key.merges:
            self._merge(node, around, line)
            around.key = None
        else:
            around.container[around.key.value] = node.value
            around.key = None

    def _key(self, node: _Node, around: _Open, line: int) -> _Node:
        if not isinstance(node.value, str):
            raise StrictYamlError("a key that is no text", line)
        if node.value in around.container or (node.merges and around.merged):
            raise StrictYamlError("a key stands twice in one mapping", line)
        return node

    def _merge(self, node: _Node, around: _Open, line: int) -> None:
        """What ``<<`` names fills in what the mapping does not say itself; of several, the first one counts."""
        sources = node.value if isinstance(node.value, list) else [node.value]
        for source in sources:
            if not isinstance(source, YamlMapping):
                raise StrictYamlError("<< merges mappings alone", line)
            around.merged = {**source, **around.merged}
