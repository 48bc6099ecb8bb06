"""Messages that say where they belong: stream, incarnation, producer, number, and a checksum.

Whoever reads one knows without asking anybody whether it is whole and whether it may be here. Text
and binary messages of a stream have one size: an offset of a deleted incarnation then never points
into the middle of a message of the next one, where the protocol has nothing to say. JSON messages
come in all sizes; there the origin refuses such offsets.

A reader takes from an answer the ids of messages, not their bytes, and where it goes on. Pure.
"""

import json
from base64 import b64decode
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple
from zlib import crc32

import msgspec

from protocol.heads import ReplyHead
from protocol.multipart import MultipartError, split_parts

JSON, TEXT, BINARY = "application/json", "text/plain", "application/octet-stream"
KINDS = (JSON, TEXT, BINARY)
FIXED_BYTES = {TEXT: 160, BINARY: 700}
JSON_BYTES = (120, 150, 400, 900, 3000)
MAGIC = 0xD5
HEAD_BYTES = 3  # of a binary message: magic and length

_FILLERS = {JSON: 'é"\\', TEXT: "é", BINARY: "ÿ"}


class Message(NamedTuple):
    stream: str
    generation: int
    producer: str
    seq: int

    @property
    def id(self) -> str:
        """Within its stream, as the history has it."""
        return f"{self.generation}.{self.producer}.{self.seq}"


PLAIN_WRITER = "plain"  # producers whose name begins so never repeat a message, and may leave gaps


def generation_of(message_id: str) -> int:
    return int(message_id.partition(".")[0])


def encode(kind: str, message: Message, size_bytes: int = 0) -> bytes:
    """The body of an append; a JSON message may have any size."""
    if kind == JSON:
        size = size_bytes or JSON_BYTES[(message.seq * 7 + message.generation) % len(JSON_BYTES)]
        return json.dumps({"m": _core(message, size, kind)}, ensure_ascii=False).encode()
    if kind == TEXT:
        return _core(message, FIXED_BYTES[kind] - 1, kind).encode() + b"\n"
    core = _core(message, FIXED_BYTES[kind] - HEAD_BYTES, kind).encode("latin-1")
    return bytes([MAGIC]) + len(core).to_bytes(2, "big") + core


def decode(kind: str, body: bytes) -> tuple[list[Message], str]:
    """(messages, what is wrong with the rest); the second is empty for a sound body."""
    found: list[Message] = []
    try:
        for core in _cores(kind, body):
            found.append(_parse(core))
    except (ValueError, msgspec.DecodeError) as error:
        return found, f"after {len(found)} messages: {error}"
    return found, ""


def _cores(kind: str, body: bytes) -> list[str]:
    if kind == JSON:
        return [item["m"] for item in msgspec.json.decode(body, type=list[dict[str, str]])]
    if kind == TEXT:
        *lines, rest = body.decode().split("\n")
        return lines if not rest else [*lines, rest + "\n"]  # without its end it is not whole
    return _unpack(body)


def _unpack(body: bytes) -> list[str]:
    cores, at = [], 0
    while at < len(body):
        end = at + HEAD_BYTES + int.from_bytes(body[at + 1 : at + HEAD_BYTES], "big")
        # A cut or shifted one goes on as it is: its checksum tells.
        cores.append(body[at + HEAD_BYTES : end].decode("latin-1") if body[at] == MAGIC else "")
        at = max(end, at + 1)
    return cores


def _core(message: Message, size_bytes: int, kind: str) -> str:
    head = " ".join(map(str, message))
    encoding = "latin-1" if kind == BINARY else "utf-8"
    room = size_bytes - len(head) - 10  # two spaces and the checksum
    filler = _FILLERS[kind]
    width = len(filler.encode(encoding))
    padding = filler * (room // width) + "." * (room % width)
    text = f"{head} {padding}"
    return f"{text} {crc32(text.encode()):08x}"


def _parse(core: str) -> Message:
    text, _, checksum = core.rpartition(" ")
    words = text.split(" ")
    if len(words) != 5 or f"{crc32(text.encode()):08x}" != checksum:
        raise ValueError(f"a message is not whole: {core[:60]!r}")
    return Message(words[0], int(words[1]), words[2], int(words[3]))


# -- answers ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Told:
    """What an answer told its reader."""

    ids: list[str] = field(default_factory=list)
    damage: str = ""
    head: ReplyHead = ReplyHead()
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
            found += map(self._shown, messages)
            damage = damage or wrong
        return found, damage

    def events(self, data: Iterable[str], control: ReplyHead) -> Told:
        """Data events, and the control event that follows them."""
        bodies = (b64decode(text) if self.kind == BINARY else text.encode() for text in data)
        return Told(*self.ids(bodies), control)

    def bootstrap(self, head: ReplyHead, body: bytes) -> Told:
        try:
            snapshot, *updates = (part.body for part in split_parts(head.content_type, body))
        except (MultipartError, ValueError):
            return self._with_snapshot(head, b"", [], "the last part is missing")
        bodies = (b"[" + part + b"]" if self.kind == JSON else part for part in updates)
        return self._with_snapshot(head, snapshot, *self.ids(bodies))

    def snapshot(self, head: ReplyHead, body: bytes) -> Told:
        return self._with_snapshot(head, body, [], "")

    def _with_snapshot(self, head: ReplyHead, body: bytes, ids: list[str], damage: str) -> Told:
        made_of = json.loads(body) if body else {}
        if made_of and made_of["stream"] != self.stream:
            ids.insert(0, f"{made_of['stream']}/snapshot")
        count, generation = made_of.get("count", 0), made_of.get("generation", -1)
        return Told(ids, damage, ReplyHead(next_offset=head.next_offset), count, generation)

    def _shown(self, message: Message) -> str:
        """A message of another stream says which."""
        return message.id if message.stream == self.stream else f"{message.stream}/{message.id}"
