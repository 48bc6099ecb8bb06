"""The few calls of NATS JetStream that a cluster needs, each with one of three outcomes.

An answer, `Refused` (the servers said no, with their error code), or `Away`: nobody answered, and
for a publish it is unknown whether it took effect.
"""

import asyncio
import base64
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

log = logging.getLogger("weir.nats")

REQUEST_SECS = 2.0
REVIVE_SECS = 1.0
BATCH_MESSAGES = 1024

# The second one if another message of the subject has no outcome yet.
WRONG_LAST_SEQUENCE = frozenset({10071, 10164})
IN_PROCESS = 10158  # an earlier try of the same message has no outcome yet
TOO_MANY_REQUESTS = 10167
UNDECIDED = frozenset({IN_PROCESS, TOO_MANY_REQUESTS})
NO_MESSAGE = 10037
NO_STREAM = 10059
NAME_IN_USE = 10058
NO_SPACE = frozenset({10023, 10047, 10077})  # of the servers, of the account, of the stream


class Away(Exception):
    """Nobody answered in time."""


class Refused(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{text} ({code})")
        self.code = code
        self.text = text


class Stored(NamedTuple):
    seq: int
    data: bytes


class StreamState(msgspec.Struct, frozen=True):
    messages: int = 0
    bytes: int = 0
    first_seq: int = 0
    last_seq: int = 0
    subjects: dict[str, int] | None = None  # if they were asked for


class _Error(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _Message(msgspec.Struct):
    seq: int
    data: str = ""


class _Answer(msgspec.Struct):
    """The fields that we use, of all answers."""

    error: _Error | None = None
    seq: int = 0
    message: _Message | None = None
    state: StreamState | None = None
    config: dict[str, Any] | None = None  # of a stream


_decoder = msgspec.json.Decoder(_Answer)


class JetStream:
    _client: Client

    def __init__(self, urls: Sequence[str], options: Mapping[str, Any]) -> None:
        self._urls = urls
        self._options = options
        self._hints: list[tuple[str, Callable[[], None]]] = []
        self._reviving: asyncio.Task[None] | None = None
        self._is_closing = False

    @classmethod
    async def connect(cls, urls: Sequence[str], **options: Any) -> "JetStream":
        """Reconnects by itself from then on; raises Away if no server can be reached now."""
        jetstream = cls(urls, options)
        jetstream._client = await jetstream._connect()
        return jetstream

    async def _connect(self) -> Client:
        try:
            return await nats.connect(
                servers=list(self._urls),
                allow_reconnect=True,
                max_reconnect_attempts=-1,
                reconnect_time_wait=0.1,
                connect_timeout=2,
                ping_interval=2,
                max_outstanding_pings=2,
                pending_size=64 * 1024 * 1024,
                error_cb=_note,
                closed_cb=self._on_closed,
                **self._options,
            )
        except (NatsError, OSError, TimeoutError) as error:
            raise Away(f"no NATS server can be reached: {error!r}") from error

    async def _on_closed(self) -> None:
        """nats-py gives up for good when it is refused, such as by a server that was given another
        password. Also called for a connection that could not be made."""
        if self._reviving is None and not self._is_closing and hasattr(self, "_client"):
            self._reviving = asyncio.create_task(self._revive(), name="connect to NATS")

    async def _revive(self) -> None:
        log.error("NATS has closed the connection; connecting again")
        while True:
            await asyncio.sleep(REVIVE_SECS)
            try:
                self._client = await self._connect()
                for subject, act in self._hints:
                    await self._listen(subject, act)
            except Exception as error:  # also of a credentials file that is being replaced
                log.info("NATS: %r", error)
            else:
                self._reviving = None
                return

    @property
    def max_message_bytes(self) -> int:
        return int(self._client.max_payload)

    @property
    def is_connected(self) -> bool:
        return bool(self._client.is_connected)

    async def close(self) -> None:
        self._is_closing = True
        if self._reviving is not None:
            self._reviving.cancel()
        try:
            await self._client.close()
        except Exception as error:  # nats-py still writes to a connection that it has given up
            log.info("NATS: %r", error)

    # -- messages ------------------------------------------------------------------------------

    async def publish(self, subject: str, data: bytes, headers: Mapping[str, str]) -> int:
        """The sequence at which it is stored, by a quorum; also if an earlier try had stored it."""
        return (await self._request(subject, data, headers)).seq

    async def get(self, stream: str, seq: int) -> bytes | None:
        return await self._get(stream, {"seq": seq})

    async def last(self, stream: str, subject: str) -> Stored | None:
        """The newest message of a subject."""
        answer = await self._get_message(stream, {"last_by_subj": subject})
        return None if answer is None else Stored(answer.seq, base64.b64decode(answer.data))

    async def _get(self, stream: str, what: object) -> bytes | None:
        message = await self._get_message(stream, what)
        return None if message is None else base64.b64decode(message.data)

    async def _get_message(self, stream: str, what: object) -> _Message | None:
        """Asked of the leader: other servers may be behind."""
        try:
            answer = await self._ask(f"STREAM.MSG.GET.{stream}", what)
        except Refused as refused:
            if refused.code == NO_MESSAGE:
                return None
            raise
        return answer.message

    async def read_from(self, stream: str, seq: int, max_bytes: int) -> list[Stored]:
        """Messages from a sequence on, as far as the server that answers has them."""
        client = self._client
        inbox = client.new_inbox()
        wanted = {"seq": seq, "batch": BATCH_MESSAGES, "max_bytes": max_bytes}
        found: list[Stored] = []
        try:
            subscription = await client.subscribe(inbox, pending_bytes_limit=4 * max_bytes)
            try:
                request = msgspec.json.encode(wanted)
                await client.publish(f"$JS.API.DIRECT.GET.{stream}", request, reply=inbox)
                while True:
                    message = await subscription.next_msg(timeout=REQUEST_SECS)
                    if _status(message):
                        return found
                    found.append(Stored(int(_header(message, "Nats-Sequence")), message.data))
            finally:
                await subscription.unsubscribe()
        except (NatsError, TimeoutError) as error:
            raise Away(f"reading {stream}: {error!r}") from error

    # -- hints: they may be lost ---------------------------------------------------------------

    async def hint(self, subject: str) -> None:
        """Tell everybody who listens, without storing anything."""
        try:
            await self._client.publish(subject, b"")
        except (NatsError, OSError) as error:
            log.debug("a hint was lost: %r", error)

    async def on_hint(self, subject: str, act: Callable[[], None]) -> None:
        self._hints.append((subject, act))
        await self._listen(subject, act)

    async def _listen(self, subject: str, act: Callable[[], None]) -> None:
        async def heard(message: Msg) -> None:
            act()

        await self._client.subscribe(subject, cb=heard)

    # -- streams -------------------------------------------------------------------------------

    async def ensure_stream(self, name: str, **config: object) -> None:
        """Create it unless it exists."""
        try:
            await self._ask(f"STREAM.CREATE.{name}", {"name": name, **config})
        except Refused as refused:
            if refused.code != NAME_IN_USE:
                raise

    async def ensure_subjects(self, name: str, subjects: Sequence[str]) -> None:
        """An existing stream may have been created with fewer."""
        config = (await self._ask(f"STREAM.INFO.{name}", {})).config
        assert config is not None
        if not set(subjects) <= set(config["subjects"]):
            await self._ask(f"STREAM.UPDATE.{name}", {**config, "subjects": [*subjects]})

    async def make_room(self, name: str, max_bytes: int) -> int:
        """A stream may hold at least so much from now on, if the servers have it; returns how much
        it may."""
        config = (await self._ask(f"STREAM.INFO.{name}", {})).config
        assert config is not None
        if config["max_bytes"] >= max_bytes:
            return int(config["max_bytes"])
        try:
            await self._ask(f"STREAM.UPDATE.{name}", {**config, "max_bytes": max_bytes})
        except Refused as refused:
            log.error("%s keeps its old room: %s", name, refused)
            return int(config["max_bytes"])
        return max_bytes

    async def state(self, stream: str) -> StreamState | None:
        """None if there is no such stream."""
        try:
            return (await self._ask(f"STREAM.INFO.{stream}", {})).state
        except Refused as refused:
            if refused.code == NO_STREAM:
                return None
            raise

    async def subjects(self, stream: str, pattern: str) -> list[str]:
        """Subjects that have messages."""
        answer = await self._ask(f"STREAM.INFO.{stream}", {"subjects_filter": pattern})
        return [] if answer.state is None else list(answer.state.subjects or {})

    async def purge(self, stream: str, before_seq: int) -> None:
        """Remove messages below a sequence."""
        await self._ask(f"STREAM.PURGE.{stream}", {"seq": before_seq})

    async def _ask(self, call: str, what: object) -> _Answer:
        return await self._request(f"$JS.API.{call}", msgspec.json.encode(what), None)

    async def _request(
        self, subject: str, data: bytes, headers: Mapping[str, str] | None
    ) -> _Answer:
        message = await self._send(subject, data, headers)
        try:
            answer = _decoder.decode(message.data)
        except msgspec.DecodeError as error:
            raise Away(f"{subject}: not an answer: {error}") from None
        if (problem := answer.error) is not None:
            is_full = problem.err_code in NO_SPACE  # some of these are 5xx as well
            if not is_full and (problem.code >= 500 or problem.err_code in UNDECIDED):
                raise Away(f"{subject}: {problem.description}")
            raise Refused(problem.err_code, problem.description)
        return answer

    async def _send(self, subject: str, data: bytes, headers: Mapping[str, str] | None) -> Msg:
        sent = None if headers is None else dict(headers)
        try:
            return await self._client.request(subject, data, timeout=REQUEST_SECS, headers=sent)
        except (NatsError, OSError, TimeoutError) as error:
            raise Away(f"{subject}: {error!r}") from error


def _header(message: Msg, name: str) -> str:
    return str((message.headers or {}).get(name, ""))


def _status(message: Msg) -> str:
    """Of the message that ends a batch."""
    return _header(message, "Status")


async def _note(error: Exception) -> None:
    log.info("NATS: %r", error)
