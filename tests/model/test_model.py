"""Random operations on the real server and on the model agree, in every storage mode.

WEIR_MODEL_EXAMPLES=N runs N random histories a mode instead of a fixed few.
"""

import itertools
import json
import os
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.helpers.origin import MODES, LocalOrigin, make_config
from tests.helpers.rawhttp import PREFIX, Connection, Response, wait_until
from tests.model.model import (
    FAR,
    AppendRequest,
    CreateRequest,
    ForkRequest,
    Model,
    Snapshot,
    Stream,
)

EXAMPLES = os.environ.get("WEIR_MODEL_EXAMPLES")
SETTINGS = settings(
    max_examples=int(EXAMPLES or 60),
    stateful_step_count=50,
    deadline=None,
    derandomize=EXAMPLES is None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
CHUNK_BYTES = 64
BEYOND = "9999999999999999_9999999999999999"

BUCKETS = ("one", "two")
NAMES = ("a", "b", "c", "d", "one/a", "one/b", "two/a")
TYPES = st.sampled_from(
    [
        *("application/json", "Application/JSON; charset=utf-8", "text/plain", "text/plain;x=y"),
        *("application/octet-stream", "image/png", None),
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
JSON_BODIES = st.one_of(
    st.lists(VALUES, min_size=1, max_size=5).map(lambda found: json.dumps(found).encode()),
    VALUES.filter(lambda value: not isinstance(value, list)).map(
        lambda value: json.dumps(value).encode()
    ),
    st.sampled_from([b"[]", b"{", b"NaN", b'"\xff"', b"1 2"]),
)
BYTE_BODIES = st.binary(min_size=1, max_size=100)
PRODUCERS = st.none() | st.tuples(st.sampled_from(["p", "q"]), st.integers(0, 2), st.integers(0, 4))
LIVES: st.SearchStrategy[tuple[str | None, str | None]] = st.sampled_from(
    [(None, None)] * 6 + [("3600", None), ("7200", None), (None, FAR), ("1", FAR)]
)


class Agreement(RuleBasedStateMachine):
    """Each rule does one request, predicts it, and learns the offsets the server hands out."""

    def __init__(self, origin: LocalOrigin, folder: str) -> None:
        super().__init__()
        self.origin = origin
        self.folder = folder
        self.model = Model()
        self.connection: Connection = origin.connect()
        self.is_persistent = origin.config.storage.mode != "memory"
        self.steps = 0  # rare rules wait for their turn

    def teardown(self) -> None:
        self.connection.close()
        assert self.origin.errors.found == []

    def ask(
        self,
        method: str,
        name: str,
        headers: dict[str, str] | None = None,
        body: bytes = b"",
        query: str = "",
    ) -> Response:
        target = self.url(name) + (f"?{query}" if query else "")
        return self.connection.request(method, target, headers, body)

    def pick(self, data: st.DataObject, label: str = "stream") -> str:
        """A stream, mostly one that is there."""
        there = sorted(self.model.streams)
        return data.draw(st.sampled_from(there * 3 + ["missing", "one/missing"]), label=label)

    def pick_new(self, data: st.DataObject) -> str:
        """A name, mostly a free one."""
        free = [name for name in NAMES if name not in self.model.streams]
        return data.draw(st.sampled_from(free * 4 + list(NAMES)), label="name")

    def url(self, name: str) -> str:
        """Buckets are called after the machine, like the folder of the flat streams."""
        bucketed = name.partition("/")[0] in BUCKETS
        return f"/ds/{self.folder}-{name}" if bucketed else f"{PREFIX}{self.folder}/{name}"

    def condition(self, name: str, condition: str | None) -> dict[str, str]:
        """The header for it; `current` is the tag of the stream as it is."""
        if condition is None:
            return {}
        if condition == "none":
            return {"If-None-Match": "*"}
        stream = self.model.streams.get(name)
        if condition == "stale":
            old = [] if stream is None else [*stream.versions.values()]
            current = None if stream is None else stream.version
            return {"If-Match": next((tag for tag in old if tag != current), '"nobody:0"')}
        return {"If-Match": (stream.version if stream else None) or "*"}

    @invariant()
    def count_steps(self) -> None:
        self.steps += 1

    # -- create ----------------------------------------------------------------------------------

    @initialize(kinds=st.lists(TYPES, min_size=3, max_size=3))
    def begin(self, kinds: list[str | None]) -> None:
        assert self.ask("PUT", "one").status == self.model.make_bucket("one")
        for name, kind in zip(("a", "b", "one/a"), kinds, strict=True):
            self.put(name, CreateRequest(kind))

    @rule(
        kind=TYPES,
        life=LIVES,
        closed=st.sampled_from([False] * 5 + [True]),
        condition=st.sampled_from([None] * 6 + ["current", "stale", "none"]),
        data=st.data(),
    )
    def create(
        self,
        kind: str | None,
        life: tuple[str | None, str | None],
        closed: bool,
        condition: str | None,
        data: st.DataObject,
    ) -> None:
        name = self.pick_new(data)
        is_json = kind is not None and "json" in kind.lower()
        body = data.draw(st.just(b"") | (JSON_BODIES if is_json else BYTE_BODIES), label="body")
        self.put(name, CreateRequest(kind, *life, closed, body, condition=condition))

    @rule(data=st.data())
    def create_again(self, data: st.DataObject) -> None:
        """The same PUT, or the same but for one thing."""
        name = self.pick(data)
        stream = self.model.streams.get(name)
        if stream is None:
            return
        made = stream.made_by
        kind, ttl, expires, closed, fork = (
            made.content_type,
            made.ttl,
            made.expires,
            stream.closed,
            made.fork,
        )
        match data.draw(st.integers(0, 7), label="change"):
            case 1:
                kind = (kind or "application/octet-stream").upper() + "; charset=utf-8"
            case 2:
                ttl, expires = ("3601", None)
            case 3:
                closed = not closed
            case 4:
                kind = "image/gif"
            case 5 if fork is not None:
                kind = ttl = expires = None
            case 6 if fork is not None and fork.position is not None:
                fork = ForkRequest(fork.source, fork.position, fork.sub_offset + 1)
            case 7:
                ttl, expires = stream.ttl, stream.expires
        self.put(name, CreateRequest(kind, ttl, expires, closed, b"", fork))

    @rule(kind=TYPES, life=LIVES, data=st.data())
    def fork(
        self,
        kind: str | None,
        life: tuple[str | None, str | None],
        data: st.DataObject,
    ) -> None:
        name, source = self.pick_new(data), self.pick(data, "source")
        known = self.model.streams.get(source)
        position, sub_offset, body = None, 0, b""
        if known is not None:
            position = data.draw(st.none() | st.sampled_from(known.positions), label="position")
            if position is not None:
                sub_offset = data.draw(st.sampled_from([0, 0, 1, 2, 5, 60]), label="sub-offset")
            if data.draw(st.integers(0, 5), label="same type"):
                kind = data.draw(st.sampled_from([None, known.content_type]), label="type")
            if data.draw(st.booleans(), label="has body"):
                body = data.draw(JSON_BODIES if known.is_json else BYTE_BODIES, label="body")
        request = ForkRequest(source, position, sub_offset)
        self.put(name, CreateRequest(kind, *life, False, body, request))

    @precondition(lambda self: self.steps % 8 == 0)
    @rule(data=st.data())
    def fork_beyond_the_tail(self, data: st.DataObject) -> None:
        name, source = self.pick_new(data), self.pick(data, "source")
        if name in self.model.streams or self.model.missing(source) is not None:
            return
        if self.model.misses_bucket(name):
            return
        headers = {"Stream-Forked-From": self.url(source), "Stream-Fork-Offset": BEYOND}
        assert self.ask("PUT", name, headers).status == 400

    def put(self, name: str, request: CreateRequest) -> None:
        headers = self.put_headers(request) | self.condition(name, request.condition)
        reply = self.ask("PUT", name, headers, request.body)
        expected = self.model.create(name, request)
        assert reply.status == expected, (reply, request)
        if expected in (200, 201):
            stream = self.model.streams[name]
            assert reply["Content-Type"] == stream.content_type
            assert reply.closed == stream.closed
            stream.learn_token(stream.tail, reply.next_offset)
            stream.learn_version(reply["ETag"])
        if expected == 412:
            assert reply.get("ETag") == (self.tag_of(name) if name in self.model.streams else None)
        if expected == 201:
            assert reply["Location"] == "http://weir.test" + self.url(name)
        assert not [field for field, _ in reply.fields if field.startswith("stream-fork")]

    def tag_of(self, name: str) -> str | None:
        """Of the stream as it is now, asked for if it was never told."""
        stream = self.model.streams[name]
        if stream.version is None:
            stream.learn_version(self.ask("HEAD", name)["ETag"])
        return stream.version

    def put_headers(self, request: CreateRequest) -> dict[str, str]:
        headers = {
            "Content-Type": request.content_type,
            "Stream-TTL": request.ttl,
            "Stream-Expires-At": request.expires,
            "Stream-Closed": "True" if request.closed else None,
        }
        if (fork := request.fork) is not None:
            headers["Stream-Forked-From"] = self.url(fork.source)
            if fork.position is not None:
                source = self.model.streams.get(fork.source)
                made = [s for s in self.model.streams.values() if s.made_by.fork == fork]
                known = source or (made[0] if made else None)
                is_known = known is not None and fork.position in known.positions
                token = known.token_at(fork.position) if known and is_known else BEYOND
                headers["Stream-Fork-Offset"] = token
            if fork.sub_offset:
                headers["Stream-Fork-Sub-Offset"] = str(fork.sub_offset)
        return {name: value for name, value in headers.items() if value is not None}

    # -- append and close ------------------------------------------------------------------------

    @rule(
        producer=PRODUCERS,
        seq=st.sampled_from([None, None, None, "1", "10", "2", "a", "B"]),
        close=st.sampled_from([False] * 11 + [True]),
        condition=st.sampled_from([None] * 4 + ["current", "stale"]),
        data=st.data(),
    )
    def append(
        self,
        producer: tuple[str, int, int] | None,
        seq: str | None,
        close: bool,
        condition: str | None,
        data: st.DataObject,
    ) -> None:
        name = self.pick(data)
        stream = self.model.streams.get(name)
        kind: str | None = "text/plain"
        if stream is not None and data.draw(st.integers(0, 9), label="right type"):
            kind = stream.content_type
        is_json = kind is not None and "json" in kind.lower()
        body = data.draw(JSON_BODIES if is_json else BYTE_BODIES, label="body")
        if producer is not None and stream is not None:
            # Mostly what a well-behaved producer would send next.
            known = stream.producers.get(producer[0])
            if data.draw(st.booleans(), label="in order"):
                following = (0, 0) if known is None else (known[0], known[1] + 1)
                producer = (producer[0], *following)
        self.post(name, AppendRequest(kind, body, producer, seq, close, condition))

    @rule(sizes=st.lists(st.integers(1, 90), min_size=1, max_size=6), data=st.data())
    def extend(self, sizes: list[int], data: st.DataObject) -> None:
        """Appends that fit, so that streams grow past several chunks."""
        stream = self.model.streams.get(self.pick(data))
        if stream is not None:
            self.grow(stream, sizes)

    def grow(self, stream: Stream, sizes: list[int]) -> None:
        for size in sizes:
            body = json.dumps(["x" * size] * (size % 3 + 1)).encode()
            request = AppendRequest(stream.content_type, body[: None if stream.is_json else size])
            self.post(stream.name, request)

    @precondition(lambda self: self.steps % 4 == 0)
    @rule(kind=TYPES, producer=PRODUCERS, data=st.data())
    def close(
        self, kind: str | None, producer: tuple[str, int, int] | None, data: st.DataObject
    ) -> None:
        name = self.pick(data)
        self.post(name, AppendRequest(kind, b"", producer, None, True))

    @precondition(lambda self: self.steps % 8 == 0)
    @rule(data=st.data())
    def append_nothing(self, data: st.DataObject) -> None:
        self.post(self.pick(data), AppendRequest("text/plain", b""))

    def post(self, name: str, request: AppendRequest) -> None:
        headers = {"Stream-Closed": "true"} if request.close else {}
        if request.content_type is not None:
            headers["Content-Type"] = request.content_type
        if request.seq is not None:
            headers["Stream-Seq"] = request.seq
        if request.producer is not None:
            producer_id, epoch, seq = request.producer
            headers |= {"Producer-Id": producer_id, "Producer-Epoch": str(epoch)}
            headers["Producer-Seq"] = str(seq)
        headers |= self.condition(name, request.condition)
        reply = self.ask("POST", name, headers, request.body)
        status, expected = self.model.append(name, request)
        assert reply.status == status, (reply, request)
        for field in ("Stream-Closed", "Producer-Epoch", "Producer-Seq"):
            assert reply.get(field) == expected.get(field), (field, reply, request)
        for field in ("Producer-Expected-Seq", "Producer-Received-Seq"):
            assert reply.get(field) == expected.get(field), (field, reply, request)
        if status in (200, 204) or (status == 409 and "Stream-Closed" in expected):
            stream = self.model.streams[name]
            stream.learn_token(stream.tail, reply.next_offset)
            if status != 409 and "ETag" in reply:
                stream.learn_version(reply["ETag"])
        if status == 412:
            assert reply["ETag"] == self.tag_of(name)

    # -- read ------------------------------------------------------------------------------------

    @rule(data=st.data())
    def head(self, data: st.DataObject) -> None:
        name = self.pick(data)
        reply = self.ask("HEAD", name)
        if (missing := self.model.missing(name)) is not None:
            assert reply.status == missing
            return
        stream = self.model.streams[name]
        assert reply.status == 200
        assert reply["Content-Type"] == stream.content_type
        assert reply["Cache-Control"] == "no-store"
        assert reply.closed == stream.closed
        assert reply.get("Stream-TTL") == stream.ttl
        expires = reply.get("Stream-Expires-At")
        assert (expires is None) == (stream.expires is None)
        if expires is not None and stream.expires is not None:
            assert datetime.fromisoformat(expires) == datetime.fromisoformat(stream.expires)
        stream.learn_token(stream.tail, reply.next_offset)
        stream.learn_version(reply["ETag"])
        earliest = reply.get("Stream-Earliest-Offset")
        assert reply.get("Stream-Snapshot-Offset") == earliest
        assert (earliest is None) == (stream.snapshot is None)
        if earliest is not None:
            stream.learn_token(stream.earliest, earliest)

    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        """From any offset that was ever handed out, on to the end."""
        name = self.pick(data)
        if (missing := self.model.missing(name)) is not None:
            assert self.ask("GET", name).status == missing
            return
        stream = self.model.streams[name]
        position = data.draw(st.sampled_from([0, *stream.positions]), label="position")
        if position < stream.earliest:
            self.read_below(stream, position)
            position = stream.earliest
        self.read_on(stream, position)

    def read_on(self, stream: Stream, position: int) -> None:
        while (end := self.read_once(stream, position)) != stream.tail:
            assert end > position, "a reader must get on"
            position = end

    def read_below(self, stream: Stream, position: int) -> None:
        query = f"offset={stream.token_at(position) if position in stream.positions else '-1'}"
        for live in ("", "&live=long-poll", "&live=sse"):
            reply = self.ask("GET", stream.name, query=query + live)
            assert reply.status == 410
            stream.learn_token(stream.earliest, reply["Stream-Earliest-Offset"])

    @rule(limit=st.integers(1, 150), data=st.data())
    def read_little(self, limit: int, data: st.DataObject) -> None:
        """As many whole messages as fit, and one at least: so more offsets are learnt."""
        stream = self.model.streams.get(self.pick(data))
        if stream is None or stream.gone:
            return
        starts = [p for p in stream.positions if p >= stream.earliest]
        start = data.draw(st.sampled_from(starts), label="position")
        query = f"offset={stream.token_at(start)}&max_bytes={limit}"
        reply = self.ask("GET", stream.name, query=query)
        assert reply.status == 200
        end = start + (len(reply.json()) if stream.is_json else len(reply.body))
        assert reply.body == stream.body(start, end)
        assert reply.up_to_date == (end == stream.tail)
        if end < stream.tail or end > start:
            stream.learn_token(end, reply.next_offset)
            ends = [p for p in range(start + 1, stream.tail + 1) if stream.is_message_end(p)]
            assert end in ends, "inside a message"
            assert len(reply.body) <= limit or end == ends[0]

    def read_once(self, stream: Stream, position: int) -> int:
        query = f"offset={stream.token_at(position)}" if position in stream.positions else ""
        reply = self.ask("GET", stream.name, query=query)
        assert reply.status == 200
        end = position + (len(reply.json()) if stream.is_json else len(reply.body))
        assert end in stream.positions, "nobody was told of it"
        stream.learn_token(end, reply.next_offset)
        at_tail = end == stream.tail
        assert reply.body == stream.body(position, end)
        assert reply["Content-Type"] == stream.content_type
        assert reply.up_to_date == at_tail
        assert reply.closed == (at_tail and stream.closed)
        etag = reply["ETag"]
        stale = [known for known in stream.etags.values() if known != etag]
        stream.learn_etag(position, end, reply.closed, etag)
        again = self.ask("GET", stream.name, {"If-None-Match": etag}, query=query)
        assert (again.status, again.body, again["ETag"]) == (304, b"", etag)
        assert again.next_offset == reply.next_offset
        if stale:
            other = self.ask("GET", stream.name, {"If-None-Match": stale[-1]}, query=query)
            assert (other.status, other.body) == (200, reply.body)
        return end

    @rule(data=st.data())
    def read_now(self, data: st.DataObject) -> None:
        name = self.pick(data)
        reply = self.ask("GET", name, query="offset=now")
        if (missing := self.model.missing(name)) is not None:
            assert reply.status == missing
            return
        stream = self.model.streams[name]
        assert (reply.status, reply.body) == (200, b"[]" if stream.is_json else b"")
        assert reply["Cache-Control"] == "no-store"
        assert (reply.up_to_date, reply.closed) == (True, stream.closed)
        stream.learn_token(stream.tail, reply.next_offset)

    @precondition(lambda self: self.steps % 8 == 0)
    @rule(data=st.data())
    def read_beyond_the_tail(self, data: st.DataObject) -> None:
        name = self.pick(data)
        reply = self.ask("GET", name, query=f"offset={BEYOND}")
        assert reply.status == (self.model.missing(name) or 400)

    @rule(data=st.data())
    def read_by_the_offset_of_another(self, data: st.DataObject) -> None:
        """Of one that is there, or was once; perhaps under this very name."""
        name = self.pick(data)
        stream = self.model.streams.get(name)
        if stream is None or stream.gone:
            return
        others = [other for other in self.model.ever if other.tokens and not stream.is_kin(other)]
        if not others:
            return
        other = others[data.draw(st.integers(0, len(others) - 1), label="other")]
        position = data.draw(st.sampled_from(sorted(other.tokens)), label="position")
        for live in ("", "&live=long-poll", "&live=sse"):
            reply = self.ask("GET", name, query=f"offset={other.tokens[position]}{live}")
            assert (reply.status, reply.json()["code"]) == (410, "foreign-offset")

    # -- snapshots -------------------------------------------------------------------------------

    @rule(body=st.binary(max_size=200), kind=TYPES, data=st.data())
    def publish(self, body: bytes, kind: str | None, data: st.DataObject) -> None:
        name = self.pick(data)
        stream = self.model.streams.get(name)
        position = 0
        if stream is not None:
            position = data.draw(st.sampled_from(stream.positions), label="position")
        self.put_snapshot(name, Snapshot(position, kind or "application/octet-stream", body))

    @rule(sizes=st.lists(st.integers(1, 90), min_size=1, max_size=4), data=st.data())
    def compact(self, sizes: list[int], data: st.DataObject) -> None:
        """The life of a stream that is meant to be snapshotted; perhaps somebody forks it."""
        stream = self.model.streams.get(self.pick(data))
        if stream is None or stream.gone:
            return
        before = stream.tail
        self.grow(stream, sizes)
        free = [name for name in NAMES if name not in self.model.streams]
        forked = data.draw(st.booleans(), label="forked")
        if free and forked:
            self.put(free[0], CreateRequest(fork=ForkRequest(stream.name, before)))
        position = data.draw(st.sampled_from([before, stream.tail]), label="position")
        self.put_snapshot(stream.name, Snapshot(position, "text/plain", bytes(sizes)))
        for fork in self.model.streams.values():  # they keep what they need
            if fork.source is stream and not fork.gone:
                self.read_on(fork, fork.earliest)

    def put_snapshot(self, name: str, snapshot: Snapshot) -> None:
        stream = self.model.streams.get(name)
        token = BEYOND.replace("9", "0") if stream is None else stream.token_at(snapshot.position)
        headers = {"Content-Type": snapshot.content_type}
        reply = self.ask("PUT", f"{name}/snapshot/{token}", headers, snapshot.body)
        expected = self.model.publish(name, snapshot)
        assert reply.status == expected, (reply, snapshot)
        if stream is None or stream.gone:
            return
        if expected == 204:
            stream.learn_token(snapshot.position, reply["Stream-Snapshot-Offset"])
            stream.learn_token(stream.tail, reply.next_offset)
        else:
            stream.learn_token(stream.earliest, reply["Stream-Earliest-Offset"])

    @precondition(lambda self: self.steps % 2 == 0)
    @rule(data=st.data())
    def read_snapshot(self, data: st.DataObject) -> None:
        name = self.pick(data)
        latest = self.ask("GET", f"{name}/snapshot")
        if (missing := self.model.missing(name)) is not None:
            assert latest.status == missing
            return
        stream = self.model.streams[name]
        snapshot = stream.snapshot
        for position in stream.positions:
            if snapshot is None or position != snapshot.position:
                target = f"{name}/snapshot/{stream.token_at(position)}"
                assert self.ask("GET", target).status == 404
                break
        if snapshot is None:
            assert latest.status == 404
            return
        assert latest.status == 307
        stream.learn_token(snapshot.position, latest["Location"].rpartition("/")[2])
        target = f"{name}/snapshot/{stream.tokens[snapshot.position]}"
        assert latest["Location"] == "http://weir.test" + self.url(target)
        assert self.ask("DELETE", target).status == 409
        reply = self.ask("GET", target)
        assert (reply.status, reply.body) == (200, snapshot.body)
        assert reply["Content-Type"] == snapshot.content_type
        at_tail = snapshot.position == stream.tail
        assert reply["Stream-Up-To-Date"] == ("true" if at_tail else "false")
        again = self.ask("GET", target, {"If-None-Match": reply["ETag"]})
        assert (again.status, again.body) == (304, b"")

    @rule(data=st.data())
    def bootstrap(self, data: st.DataObject) -> None:
        """The snapshot, then one part for each message behind it."""
        name = self.pick(data)
        reply = self.ask("GET", f"{name}/bootstrap")
        if (missing := self.model.missing(name)) is not None:
            assert reply.status == missing
            return
        stream = self.model.streams[name]
        first = stream.snapshot or Snapshot(0, "application/octet-stream", b"")
        assert reply.status == 200
        if stream.snapshot:
            stream.learn_token(first.position, reply["Stream-Snapshot-Offset"])
        else:
            assert reply["Stream-Snapshot-Offset"] == "-1"
        assert (reply.up_to_date, reply.closed) == (True, stream.closed)
        stream.learn_token(stream.tail, reply.next_offset)
        parts = [(first.content_type, first.body)]
        parts += [(stream.content_type, message) for message in stream.messages()]
        boundary = reply["Content-Type"].partition("boundary=")[2]
        expected = "".join(
            f"--{boundary}\r\nContent-Type: {kind}\r\n\r\n{body.decode('latin-1')}\r\n"
            for kind, body in parts
        )
        assert reply.body == f"{expected}--{boundary}--\r\n".encode("latin-1")
        again = self.ask("GET", f"{name}/bootstrap", {"If-None-Match": reply["ETag"]})
        assert (again.status, again.body) == (304, b"")

    # -- buckets ---------------------------------------------------------------------------------

    @precondition(lambda self: self.steps % 3 == 0)
    @rule(bucket=st.sampled_from(BUCKETS))
    def make_bucket(self, bucket: str) -> None:
        assert self.ask("PUT", bucket).status == self.model.make_bucket(bucket)

    @precondition(lambda self: self.steps % 3 == 0)
    @rule(bucket=st.sampled_from(BUCKETS), emptied=st.booleans())
    def drop_bucket(self, bucket: str, emptied: bool) -> None:
        for stream in self.model.listed(bucket) if emptied else []:
            self.remove(stream.name)
        assert self.ask("DELETE", bucket).status == self.model.drop_bucket(bucket)

    @rule(bucket=st.sampled_from(BUCKETS))
    def look_into_bucket(self, bucket: str) -> None:
        reply, listing = self.ask("GET", bucket), self.ask("GET", f"{bucket}/streams")
        if bucket not in self.model.buckets:
            assert (reply.status, listing.status) == (404, 404)
            return
        streams = self.model.listed(bucket)
        assert reply.json()["streams"] == len(streams)
        found = [(row["stream_id"], row["status"], row["tail_offset"]) for row in rows_of(listing)]
        assert found == [
            (s.name.partition("/")[2], "Closed" if s.closed else "Open", s.stored_size())
            for s in streams
        ]

    # -- delete and restart ----------------------------------------------------------------------

    @precondition(lambda self: self.steps % 2 == 0)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        self.remove(self.pick(data))

    def remove(self, name: str) -> None:
        reply = self.ask("DELETE", name)
        status, collected = self.model.delete(name)
        assert reply.status == status
        for source in collected:  # may take the server a moment
            wait_until(partial(self.is_missing, source), what="the source is collected")

    def is_missing(self, name: str) -> bool:
        return self.ask("HEAD", name).status == 404

    @precondition(lambda self: self.steps % 3 == 0 and self.is_persistent)
    @rule()
    def restart(self) -> None:
        self.connection.close()
        self.origin.restart()
        self.connection = self.origin.connect()


def rows_of(listing: Response) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = listing.json()["streams"]
    return rows


def machines(origin: LocalOrigin) -> Callable[[], Agreement]:
    numbers = itertools.count()
    return lambda: Agreement(origin, f"m{next(numbers)}")


@pytest.mark.slow
@pytest.mark.timeout(0 if EXAMPLES else 300)
@pytest.mark.parametrize("mode", MODES)
def test_server_and_model_agree(tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Small and hasty, so that reads meet every mixture of journal, segments and cache.
    monkeypatch.setattr("origin.storage.filestore.FIRST_CHECKPOINT_SECS", 0.02, raising=False)
    storage = {"chunk_bytes": CHUNK_BYTES, "checkpoint_secs": 0.05, "cache_bytes": 8192}
    storage["journal_bytes"] = 64 * 1024
    limits = {"max_body_bytes": 16 * 1024}
    origin = LocalOrigin(make_config(tmp_path, mode, storage=storage, limits=limits))
    origin.start()
    try:
        run_state_machine_as_test(machines(origin), settings=SETTINGS)  # type: ignore[arg-type]
    finally:
        origin.stop()
    assert origin.errors.found == []
