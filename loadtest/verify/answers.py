"""What an answer told its reader: ids of messages, not their bytes, and where it goes on. Pure."""

import json
from base64 import b64decode
from collections.abc import Iterable
from dataclasses import dataclass, field

from loadtest.verify.messages import BINARY, JSON, Message, decode
from protocol.heads import ReplyHead
from protocol.multipart import MultipartError, split_parts


@dataclass(frozen=True, slots=True)
class Told:
    """Fields of `history.ReadResult`."""

    ids: list[str] = field(default_factory=list)
    damage: str = ""
    next: str = ""
    cursor: str = ""
    up_to_date: bool = False
    closed: bool = False
    snapshot: int = -1
    snapshot_of: int = -1


@dataclass(frozen=True, slots=True)
class Decoder:
    """Of the answers of one stream."""

    stream: str
    kind: str

    def ids(self, bodies: Iterable[bytes]) -> tuple[list[str], str]:
        """Of all messages; and what is wrong with the first body that is not sound."""
        found: list[str] = []
        damage = ""
        for body in bodies:
            messages, wrong = decode(self.kind, body)
            found += [shown_id(self.stream, message) for message in messages]
            damage = damage or wrong
        return found, damage

    def events(self, data: Iterable[str], control: ReplyHead) -> Told:
        """Data events, and the control event that follows them."""
        ids, damage = self.ids(
            b64decode(text) if self.kind == BINARY else text.encode() for text in data
        )
        return Told(
            ids,
            damage,
            next=control.next_offset,
            cursor=control.cursor,
            up_to_date=control.up_to_date,
            closed=control.closed,
        )

    def bootstrap(self, content_type: str, body: bytes, reached: str) -> Told:
        try:
            snapshot, *updates = (part.body for part in split_parts(content_type, body))
        except (MultipartError, ValueError):
            return self._with_snapshot(b"", [], "the last part is missing", reached)
        bodies = (b"[" + part + b"]" if self.kind == JSON else part for part in updates)
        return self._with_snapshot(snapshot, *self.ids(bodies), reached)

    def snapshot(self, body: bytes, reached: str) -> Told:
        return self._with_snapshot(body, [], "", reached)

    def _with_snapshot(self, snapshot: bytes, ids: list[str], damage: str, reached: str) -> Told:
        made_of = json.loads(snapshot) if snapshot else {}
        if made_of and made_of["stream"] != self.stream:
            ids.insert(0, f"{made_of['stream']}/snapshot")
        count, generation = made_of.get("count", 0), made_of.get("generation", -1)
        return Told(ids, damage, reached, snapshot=count, snapshot_of=generation)


def shown_id(stream: str, message: Message) -> str:
    """A message of another stream says which."""
    return message.id if message.stream == stream else f"{message.stream}/{message.id}"
