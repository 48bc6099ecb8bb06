"""Messages that say where they belong: stream, incarnation, producer, number, and a checksum.

Whoever reads one knows without asking anybody whether it is whole and whether it may be here. Text
and binary messages of a stream have one size: an offset of a deleted incarnation then never points
into the middle of a message of the next one, where the protocol has nothing to say. JSON messages
come in all sizes; there the origin refuses such offsets. Pure.
"""

import json
from typing import NamedTuple
from zlib import crc32

import msgspec

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


def generation_of(message_id: str) -> int:
    return int(message_id.partition(".")[0])


def encode(kind: str, message: Message) -> bytes:
    """The body of an append."""
    if kind == JSON:
        size = JSON_BYTES[(message.seq * 7 + message.generation) % len(JSON_BYTES)]
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
