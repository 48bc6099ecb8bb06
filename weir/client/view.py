"""A state and its changes as lines: as columns or as JSON."""

from collections.abc import Iterator

from protocol.state import DELETE, Change, Materialised, Message
from weir.client.escapes import shown_json, shown_string, shown_word

MAX_COLUMN = 40  # characters; a longer type or key moves only its own line


def state_table(state: Materialised) -> Iterator[str]:
    """A line per entity, sorted by type and key."""
    rows = [
        (shown_word(kind), shown_word(key), value)
        for kind, entities in sorted(state.entities.items())
        for key, value in sorted(entities.items())
    ]
    kinds, keys = _width([row[0] for row in rows]), _width([row[1] for row in rows])
    yield f"{'TYPE':{kinds}}  {'KEY':{keys}}  VALUE"
    for kind, key, value in rows:
        yield f"{kind:{kinds}}  {key:{keys}}  {shown_json(value)}"


def state_json(state: Materialised) -> Iterator[str]:
    """The pieces of one line: {"type": {"key": value}}."""
    between = "{"
    for kind, entities in sorted(state.entities.items()):
        yield f"{between}{shown_string(kind)}:"
        between = "{"
        for key, value in sorted(entities.items()):
            yield f"{between}{shown_string(key)}:{shown_json(value)}"
            between = ","
        yield "}"
        between = ","
    yield "}" if state.entities else "{}"


def message_line(message: Message) -> str:
    if not isinstance(message, Change):
        words = [message.control] + ([shown_word(message.offset)] if message.offset else [])
    else:
        words = [message.operation, shown_word(message.type), shown_word(message.key)]
        if message.operation != DELETE and message.value is not None:
            words.append(shown_json(message.value))
    return "  ".join(words)


def message_json(message: Message) -> str:
    if not isinstance(message, Change):
        offset = f',"offset":{shown_string(message.offset)}' if message.offset else ""
        return f'{{"control":"{message.control}"{offset}}}'
    fields = {"type": message.type, "key": message.key}
    members = [f'"operation":"{message.operation}"']
    members += [f'"{name}":{shown_string(text)}' for name, text in fields.items()]
    if message.operation != DELETE and message.value is not None:
        members.append(f'"value":{shown_json(message.value)}')
    return "{" + ",".join(members) + "}"


def _width(words: list[str]) -> int:
    return min(MAX_COLUMN, max((4, *map(len, words))))
