"""An HTTP/1.1 response as it arrives in pieces. Pure: bytes in, one `Reply` out.

Bodies are counted, not kept, unless asked: a crowd of readers must cost the client little.
"""

from dataclasses import dataclass, field
from enum import Enum

from loadtest.errors import RunFailedError


class BadReplyError(RunFailedError):
    """The server sent something that is not a response we can follow."""


@dataclass(slots=True)
class Reply:
    status: int
    headers: dict[str, str]
    body_bytes: int = 0
    body: bytearray = field(default_factory=bytearray)
    read_at: float = 0.0
    """When its last byte was read, by `time.perf_counter`."""


class _Part(Enum):
    HEAD = 0
    BODY = 1
    CHUNK_SIZE = 2
    CHUNK_END = 3
    TRAILER = 4
    DONE = 5


class ReplyReader:
    """Reads exactly one response; `feed` says whether it is complete."""

    def __init__(self, *, head_only: bool = False, keep_body: bool = False) -> None:
        self._head_only = head_only
        self._keep_body = keep_body
        self._line = bytearray()
        self._part = _Part.HEAD
        self._left = 0
        self._chunked = False
        self.reply = Reply(0, {})

    def feed(self, data: memoryview) -> bool:
        while data:
            match self._part:
                case _Part.HEAD:
                    data = self._feed_head(data)
                case _Part.BODY:
                    data = self._feed_body(data)
                case _Part.DONE:
                    raise BadReplyError("bytes after the end of a response")
                case _:
                    data = self._feed_line(data)
        return self._part is _Part.DONE

    @property
    def skippable(self) -> int:
        """How many of the next bytes are body that nobody wants to see."""
        return self._left if self._part is _Part.BODY and not self._keep_body else 0

    def skip(self, count: int) -> bool:
        """As if `count` bytes of body had been fed."""
        self.reply.body_bytes += count
        self._left -= count
        if not self._left:
            self._part = _Part.CHUNK_END if self._chunked else _Part.DONE
        return self._part is _Part.DONE

    def _feed_head(self, data: memoryview) -> memoryview:
        before = len(self._line)
        self._line += data
        end = self._line.find(b"\r\n\r\n", max(before - 3, 0))
        if end < 0:
            return data[len(data) :]
        self._start_body(bytes(self._line[:end]))
        self._line.clear()
        return data[end + 4 - before :]

    def _start_body(self, head: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        words = first.split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
            raise BadReplyError(f"no status line: {first[:80]!r}")
        pairs = (line.partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        self.reply = Reply(int(words[1]), headers)
        if self._head_only or self.reply.status in (204, 304):
            self._part = _Part.DONE
        elif headers.get("transfer-encoding", "").lower() == "chunked":
            self._chunked = True
            self._part = _Part.CHUNK_SIZE
        elif headers.get("content-length", "").isdigit():
            self._left = int(headers["content-length"])
            self._part = _Part.BODY if self._left else _Part.DONE
        else:
            raise BadReplyError("a response without a length")

    def _feed_body(self, data: memoryview) -> memoryview:
        taken = min(len(data), self._left)
        if self._keep_body:
            self.reply.body += data[:taken]
        self.skip(taken)
        return data[taken:]

    def _feed_line(self, data: memoryview) -> memoryview:
        """One byte at a time: these lines are a few bytes long and rare."""
        self._line.append(data[0])
        if self._line.endswith(b"\r\n"):
            self._end_line(bytes(self._line[:-2]))
            self._line.clear()
        return data[1:]

    def _end_line(self, line: bytes) -> None:
        match self._part:
            case _Part.CHUNK_SIZE:
                self._left = _chunk_size(line)
                self._part = _Part.BODY if self._left else _Part.TRAILER
            case _Part.CHUNK_END:
                if line:
                    raise BadReplyError("a chunk longer than its size")
                self._part = _Part.CHUNK_SIZE
            case _ if not line:
                self._part = _Part.DONE


def _chunk_size(line: bytes) -> int:
    try:
        return int(line.split(b";")[0], 16)
    except ValueError as error:
        raise BadReplyError(f"no chunk size: {line[:40]!r}") from error


def verdict_of(reply: Reply) -> str:
    """The last cache's word of `Cache-Status`: hit, collapsed, hub, or why it went on."""
    members = reply.headers.get("cache-status", "").rpartition(",")[2].split(";")[1:]
    words = dict(member.strip().partition("=")[::2] for member in members)
    return words.get("detail") or ("hit" if "hit" in words else words.get("fwd", ""))
