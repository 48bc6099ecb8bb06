"""What the protocol says streams do, as plainly as possible: lists in memory, no HTTP, no storage.

Written from the protocol text, not from the server. Positions count bytes, or messages in JSON
mode; offsets are opaque tokens that are learnt from the server and then held to be unique, ordered
and stable.
"""

import json
from dataclasses import dataclass, field

JSON = "application/json"
FAR = "2099-01-01T00:00:00Z"


def media(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


@dataclass(frozen=True)
class ForkRequest:
    source: str
    position: int | None = None  # None: the source's tail when the fork is made
    sub_offset: int = 0


@dataclass(frozen=True)
class CreateRequest:
    content_type: str | None = None
    ttl: str | None = None
    expires: str | None = None
    closed: bool = False
    body: bytes = b""
    fork: ForkRequest | None = None
    condition: str | None = None  # `current` and `stale` are If-Match, `none` is If-None-Match: *


@dataclass(frozen=True)
class AppendRequest:
    content_type: str | None
    body: bytes
    producer: tuple[str, int, int] | None = None
    seq: str | None = None
    close: bool = False
    condition: str | None = None  # If-Match: `current` or `stale`


@dataclass(frozen=True)
class Snapshot:
    position: int
    content_type: str
    body: bytes


@dataclass
class Stream:
    name: str
    content_type: str
    made_by: CreateRequest
    ttl: str | None
    expires: str | None
    source: "Stream | None" = None
    content: list[bytes] = field(default_factory=list)  # single bytes, or JSON messages
    bounds: list[int] = field(default_factory=lambda: [0])  # where appends end
    closed: bool = False
    closed_by: tuple[str, int, int] | None = None
    producers: dict[str, tuple[int, int]] = field(default_factory=dict)
    last_seq: str | None = None
    forks: int = 0
    gone: bool = False
    snapshot: Snapshot | None = None
    tokens: dict[int, str] = field(default_factory=dict)
    inherited: dict[int, str] = field(default_factory=dict)  # its ancestors' tokens, up to the fork
    etags: dict[tuple[int, int, bool], str] = field(default_factory=dict)
    versions: dict[tuple[int, bool], str] = field(default_factory=dict)

    @property
    def is_json(self) -> bool:
        return media(self.content_type) == JSON

    @property
    def tail(self) -> int:
        return len(self.content)

    @property
    def earliest(self) -> int:
        """What came before is in the snapshot."""
        return 0 if self.snapshot is None else self.snapshot.position

    @property
    def version(self) -> str | None:
        """The tag of the stream as it is now, if it was told."""
        return self.versions.get((self.tail, self.closed))

    def messages(self) -> list[bytes]:
        """What lies behind the snapshot, one by one."""
        if self.is_json:
            return self.content[self.earliest :]
        borders = [bound for bound in self.bounds if bound >= self.earliest]
        pairs = zip([self.earliest, *borders], borders, strict=False)
        return [b"".join(self.content[start:end]) for start, end in pairs if start < end]

    def is_message_end(self, position: int) -> bool:
        return self.is_json or position in self.bounds

    def stored_size(self) -> int:
        """The bytes ever stored: each JSON message has a comma behind it."""
        return sum(len(unit) + self.is_json for unit in self.content)

    def body(self, start: int, end: int) -> bytes:
        part = self.content[start:end]
        return b"[" + b",".join(part) + b"]" if self.is_json else b"".join(part)

    def learn_token(self, position: int, token: str) -> None:
        """One position, one token, in the same order."""
        assert self.tokens.setdefault(position, token) == token
        for other, known in self.tokens.items():
            assert (other < position) == (known < token), (other, known, position, token)

    @property
    def positions(self) -> list[int]:
        """Those that have a token."""
        return sorted({*self.tokens, *self.inherited})

    def token_at(self, position: int) -> str:
        return self.tokens.get(position) or self.inherited[position]

    def is_kin(self, other: "Stream") -> bool:
        """Whether some offsets of the other one are valid here."""
        return other is self or (self.source is not None and self.source.is_kin(other))

    def learn_etag(self, start: int, end: int, closed: bool, etag: str) -> None:
        """Same answer, same tag; another answer, another tag."""
        key = (start, end, closed)
        assert self.etags.setdefault(key, etag) == etag
        assert list(self.etags.values()).count(etag) == 1

    def learn_version(self, etag: str) -> None:
        key = (self.tail, self.closed)
        assert self.versions.setdefault(key, etag) == etag
        assert list(self.versions.values()).count(etag) == 1


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def split_body(stream_is_json: bool, body: bytes) -> list[bytes] | None:
    """The units a body adds to a stream; None if it is not JSON."""
    if not stream_is_json:
        return [bytes([byte]) for byte in body]
    if not body:
        return []
    try:
        value = json.loads(body, parse_constant=_refuse_constant)
    except ValueError:
        return None
    # The generated bodies are canonical, so encoding a message again gives its own bytes.
    messages = value if isinstance(value, list) else [value]
    return [json.dumps(message).encode() for message in messages]


class Model:
    """Names with a slash are those of streams in a bucket."""

    def __init__(self) -> None:
        self.streams: dict[str, Stream] = {}
        self.ever: list[Stream] = []  # also those that were deleted
        self.buckets: set[str] = set()

    # -- PUT -------------------------------------------------------------------------------------

    def create(self, name: str, request: CreateRequest) -> int:
        """The status of a PUT; on 201 the stream is there."""
        if request.ttl is not None and request.expires is not None:
            return 400
        if self.misses_bucket(name):
            return 404
        existing = self.streams.get(name)
        if existing is not None:
            if existing.gone:
                return 409
            if request.condition in ("stale", "none"):
                return 412
            return 200 if self._same(existing, request) else 409
        if request.condition in ("current", "stale"):
            return 412
        if request.fork is not None:
            return self._create_fork(name, request, request.fork)
        content_type = request.content_type or "application/octet-stream"
        stream = Stream(name, content_type, request, request.ttl, request.expires)
        return self._fill(stream, request)

    def _create_fork(self, name: str, request: CreateRequest, fork: ForkRequest) -> int:
        source = self.streams.get(fork.source)
        if source is None:
            return 404
        if source.gone:
            return 409
        if request.content_type and media(request.content_type) != media(source.content_type):
            return 409
        start = source.tail if fork.position is None else fork.position
        if start > source.tail:
            return 400
        if start < source.earliest:
            return 410
        position = start + fork.sub_offset
        if fork.sub_offset:
            later = [bound for bound in source.bounds if bound > start]
            if not later or position > later[0]:
                return 400
        own_life = request.ttl is not None or request.expires is not None
        stream = Stream(
            name,
            request.content_type or source.content_type,
            request,
            request.ttl if own_life else source.ttl,
            request.expires if own_life else source.expires,
            source,
            source.content[:position],
            [bound for bound in source.bounds if bound < position] + [position],
        )
        stream.inherited = {p: source.token_at(p) for p in source.positions if p <= position}
        stream.snapshot = source.snapshot
        return self._fill(stream, request)

    def _fill(self, stream: Stream, request: CreateRequest) -> int:
        units = split_body(stream.is_json, request.body)
        if units is None:
            return 400
        if units:
            stream.content += units
            stream.bounds.append(stream.tail)
        stream.closed = request.closed
        if stream.source is not None:
            stream.source.forks += 1
        self.streams[stream.name] = stream
        self.ever.append(stream)
        return 201

    def _same(self, stream: Stream, request: CreateRequest) -> bool:
        first, fork = stream.made_by.fork, request.fork
        if stream.closed != request.closed or first != fork:
            return False
        if fork is None:
            asked = media(request.content_type or "application/octet-stream")
            life = (request.ttl, request.expires)
            return asked == media(stream.content_type) and life == (stream.ttl, stream.expires)
        if request.content_type and media(request.content_type) != media(stream.content_type):
            return False
        if request.ttl is None and request.expires is None:
            return True  # inherited, as before
        return (request.ttl, request.expires) == (stream.ttl, stream.expires)

    # -- POST ------------------------------------------------------------------------------------

    def append(self, name: str, request: AppendRequest) -> tuple[int, dict[str, str]]:
        """Status and the producer and closure headers of a POST."""
        close_only = request.close and not request.body
        if not request.body and not request.close:
            return 400, {}
        if request.body and request.content_type is None:
            return 400, {}
        stream = self.streams.get(name)
        if stream is None:
            return 404, {}
        if stream.gone:
            return 410, {}
        if stream.closed:
            return self._append_closed(stream, request, close_only)
        if request.body and media(request.content_type or "") != media(stream.content_type):
            return 409, {}
        refused = self._judge_producer(stream, request)
        if refused is not None:
            return refused
        if request.seq is not None:
            if stream.last_seq is not None and request.seq <= stream.last_seq:
                return 409, {}
        if request.condition == "stale":
            return 412, {}
        units = split_body(stream.is_json, request.body)
        if units is None or (request.body and not units):
            return 400, {}
        return self._accept(stream, request, units, close_only)

    def _append_closed(
        self, stream: Stream, request: AppendRequest, close_only: bool
    ) -> tuple[int, dict[str, str]]:
        headers = {"Stream-Closed": "true"}
        if request.producer is None:
            return (204 if close_only else 409), headers
        if request.producer != stream.closed_by:
            return 409, headers
        epoch, last = stream.producers[request.producer[0]]
        return 204, headers | {"Producer-Epoch": str(epoch), "Producer-Seq": str(last)}

    def _judge_producer(
        self, stream: Stream, request: AppendRequest
    ) -> tuple[int, dict[str, str]] | None:
        if request.producer is None:
            return None
        producer_id, epoch, seq = request.producer
        known = stream.producers.get(producer_id)
        if known is not None and epoch < known[0]:
            return 403, {"Producer-Epoch": str(known[0])}
        if known is not None and epoch > known[0]:
            return None if seq == 0 else (400, {})
        last = -1 if known is None else known[1]
        if seq <= last:
            return 204, {"Producer-Epoch": str(epoch), "Producer-Seq": str(last)}
        if seq == last + 1:
            return None
        return 409, {"Producer-Expected-Seq": str(last + 1), "Producer-Received-Seq": str(seq)}

    def _accept(
        self, stream: Stream, request: AppendRequest, units: list[bytes], close_only: bool
    ) -> tuple[int, dict[str, str]]:
        headers: dict[str, str] = {}
        if units:
            stream.content += units
            stream.bounds.append(stream.tail)
        if request.seq is not None:
            stream.last_seq = request.seq
        if request.producer is not None:
            producer_id, epoch, seq = request.producer
            stream.producers[producer_id] = (epoch, seq)
            headers |= {"Producer-Epoch": str(epoch), "Producer-Seq": str(seq)}
        if request.close:
            stream.closed = True
            stream.closed_by = request.producer
            headers["Stream-Closed"] = "true"
        return (204 if request.producer is None or close_only else 200), headers

    # -- DELETE ----------------------------------------------------------------------------------

    def delete(self, name: str) -> tuple[int, list[str]]:
        """The status, and the sources that go with their last fork."""
        stream = self.streams.get(name)
        if stream is None:
            return 404, []
        if stream.gone:
            return 410, []
        if stream.forks:
            stream.gone = True
            return 204, []
        collected: list[str] = []
        del self.streams[name]
        while (source := stream.source) is not None:
            source.forks -= 1
            if source.forks or not source.gone:
                break
            del self.streams[source.name]
            collected.append(source.name)
            stream = source
        return 204, collected

    # -- snapshots and buckets -------------------------------------------------------------------

    def publish(self, name: str, snapshot: Snapshot) -> int:
        missing = self.missing(name)
        if missing is not None:
            return missing
        stream = self.streams[name]
        if snapshot.position < stream.earliest:
            return 410
        stream.snapshot = snapshot
        return 204

    def make_bucket(self, bucket: str) -> int:
        if bucket in self.buckets:
            return 409
        self.buckets.add(bucket)
        return 201

    def drop_bucket(self, bucket: str) -> int:
        if bucket not in self.buckets:
            return 404
        if any(name.startswith(f"{bucket}/") for name in self.streams):
            return 409
        self.buckets.remove(bucket)
        return 204

    def misses_bucket(self, name: str) -> bool:
        bucket, slash, _ = name.partition("/")
        return slash != "" and bucket not in self.buckets

    def listed(self, bucket: str) -> list[Stream]:
        names = sorted(name for name in self.streams if name.startswith(f"{bucket}/"))
        return [self.streams[name] for name in names if not self.streams[name].gone]

    def missing(self, name: str) -> int | None:
        """404 or 410 for a read of what is not there."""
        stream = self.streams.get(name)
        if stream is None:
            return 404
        return 410 if stream.gone else None
