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
from tests.helpers.rawhttp import PREFIX, Client, Response, wait_until
from tests.model.model import FAR, AppendRequest, CreateRequest, ForkRequest, Model, Stream

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

NAMES = ("a", "b", "c", "d", "e", "f")
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
        self.client: Client = origin.client()
        self.is_persistent = origin.config.storage.mode != "memory"
        self.steps = 0  # rare rules wait for their turn

    def teardown(self) -> None:
        self.client.close()
        assert self.origin.errors.found == []

    def ask(
        self,
        method: str,
        name: str,
        headers: dict[str, str] | None = None,
        body: bytes = b"",
        query: str = "",
    ) -> Response:
        return self.client(method, f"{self.folder}/{name}", headers, body, query)

    def pick(self, data: st.DataObject, label: str = "stream") -> str:
        """A stream, mostly one that is there."""
        there = sorted(self.model.streams)
        return data.draw(st.sampled_from(there * 3 + ["missing"]), label=label)

    def pick_new(self, data: st.DataObject) -> str:
        """A name, mostly a free one."""
        free = [name for name in NAMES if name not in self.model.streams]
        return data.draw(st.sampled_from(free * 4 + list(NAMES)), label="name")

    def url(self, name: str) -> str:
        return f"{PREFIX}{self.folder}/{name}"

    @invariant()
    def count_steps(self) -> None:
        self.steps += 1

    # -- create ----------------------------------------------------------------------------------

    @initialize(kinds=st.lists(TYPES, min_size=3, max_size=3))
    def begin(self, kinds: list[str | None]) -> None:
        for name, kind in zip(NAMES, kinds, strict=False):
            self.put(name, CreateRequest(kind))

    @rule(
        kind=TYPES,
        life=LIVES,
        closed=st.sampled_from([False] * 5 + [True]),
        data=st.data(),
    )
    def create(
        self,
        kind: str | None,
        life: tuple[str | None, str | None],
        closed: bool,
        data: st.DataObject,
    ) -> None:
        name = self.pick_new(data)
        is_json = kind is not None and "json" in kind.lower()
        body = data.draw(st.just(b"") | (JSON_BODIES if is_json else BYTE_BODIES), label="body")
        self.put(name, CreateRequest(kind, *life, closed, body))

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
            tokens = sorted(known.tokens)
            position = data.draw(st.none() | st.sampled_from(tokens), label="position")
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
        headers = {"Stream-Forked-From": self.url(source), "Stream-Fork-Offset": BEYOND}
        assert self.ask("PUT", name, headers).status == 400

    def put(self, name: str, request: CreateRequest) -> None:
        reply = self.ask("PUT", name, self.put_headers(request), request.body)
        expected = self.model.create(name, request)
        assert reply.status == expected, (reply, request)
        if expected in (200, 201):
            stream = self.model.streams[name]
            assert reply["Content-Type"] == stream.content_type
            assert reply.closed == stream.closed
            stream.learn_token(stream.tail, reply.next_offset)
        if expected == 201:
            assert reply["Location"] == "http://weir.test" + self.url(name)
        assert not [field for field, _ in reply.fields if field.startswith("stream-fork")]

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
                tokens = (source or made[0]).tokens if source or made else {}
                headers["Stream-Fork-Offset"] = tokens.get(fork.position, BEYOND)
            if fork.sub_offset:
                headers["Stream-Fork-Sub-Offset"] = str(fork.sub_offset)
        return {name: value for name, value in headers.items() if value is not None}

    # -- append and close ------------------------------------------------------------------------

    @rule(
        producer=PRODUCERS,
        seq=st.sampled_from([None, None, None, "1", "10", "2", "a", "B"]),
        close=st.sampled_from([False] * 11 + [True]),
        data=st.data(),
    )
    def append(
        self,
        producer: tuple[str, int, int] | None,
        seq: str | None,
        close: bool,
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
        self.post(name, AppendRequest(kind, body, producer, seq, close))

    @rule(sizes=st.lists(st.integers(1, 90), min_size=1, max_size=6), data=st.data())
    def extend(self, sizes: list[int], data: st.DataObject) -> None:
        """Appends that fit, so that streams grow past several chunks."""
        stream = self.model.streams.get(name := self.pick(data))
        if stream is None:
            return
        for size in sizes:
            body = json.dumps(["x" * size] * (size % 3 + 1)).encode()
            self.post(
                name, AppendRequest(stream.content_type, body[: None if stream.is_json else size])
            )

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

    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        """From any offset that was ever handed out, on to the end."""
        name = self.pick(data)
        if (missing := self.model.missing(name)) is not None:
            assert self.ask("GET", name).status == missing
            return
        stream = self.model.streams[name]
        position = data.draw(st.sampled_from([0, *sorted(stream.tokens)]), label="position")
        while True:
            end = self.read_once(stream, position)
            if end == stream.tail:
                return
            assert end > position, "a reader must get on"
            position = end

    def read_once(self, stream: Stream, position: int) -> int:
        query = f"offset={stream.tokens[position]}" if position in stream.tokens else ""
        reply = self.ask("GET", stream.name, query=query)
        assert reply.status == 200
        end = stream.position_of(reply.next_offset)
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

    # -- delete and restart ----------------------------------------------------------------------

    @precondition(lambda self: self.steps % 2 == 0)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        name = self.pick(data)
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
        self.client.close()
        self.origin.restart()
        self.client = self.origin.client()


def machines(origin: LocalOrigin) -> Callable[[], Agreement]:
    numbers = itertools.count()
    return lambda: Agreement(origin, f"m{next(numbers)}")


@pytest.mark.slow
@pytest.mark.timeout(0 if EXAMPLES else 120)
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
