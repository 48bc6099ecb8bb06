"""The second level of the cache: immutable parts of streams, shared by gateways through Redis.

A stream has a generation, a random token. Chunks are sealed with it, and only chunks of the
current generation are opened. So deleting the generation purges the stream, and a flight that
stores its chunk after a purge does no harm. Redis is never trusted: values without our seal are
dropped and counted, and sealed values may have been put back (`cache` asks the origin). Without
Redis no request fails; it only costs a request to the origin.
"""

import asyncio
import re
import secrets
from hashlib import blake2b
from itertools import islice
from typing import TypeGuard

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gateway.entries import Entry
from gateway.redislink import FIRST_PAUSE_SECS, Command, Link, Reply

MIB = 1024 * 1024
MAX_VALUE_BYTES = 4 * MIB
MAX_PUT_BYTES = 32 * MIB  # of all values being stored
MAX_OWED = 100_000
REPAY_BATCH = 500
# Also the longest useful life of a chunk. Refreshed by every stored chunk.
GENERATION_TTL_SECS = 7 * 86_400

GENERATION_KEYS = "weir:gen:"
CHUNK_KEYS = "weir:chunk:"

_GENERATION = re.compile(rb"[0-9a-f]{24}")
_GENERATION_BYTES = 24
_NONCE_BYTES = 12
_HEAD_BYTES = _GENERATION_BYTES + _NONCE_BYTES
_SEAL_BYTES = _HEAD_BYTES + 16  # and the tag


class RedisCache:
    """Chunks are sealed and encrypted with `key`, which the fleet shares.

    Without one a well-known key is used, which detects accidents but not attacks.
    """

    def __init__(
        self,
        url: str,
        timeout_s: float,
        key: str = "",
        *,
        max_value_bytes: int = MAX_VALUE_BYTES,
        first_pause_s: float = FIRST_PAUSE_SECS,
    ) -> None:
        self.link = Link(url, timeout_s, repair=self._repay, first_pause_s=first_pause_s)
        self._secret = derive_key(key)
        self.is_sealed = key != ""
        self._max_value_bytes = max_value_bytes
        self._puts: set[asyncio.Task[bool]] = set()
        self._put_bytes = 0
        self._owed: set[str] = set()  # generation keys that could not be purged yet
        self._owes_all = False
        self.hits = 0
        self.misses = 0
        self.rejected = 0  # forged, swapped or damaged
        self.stored = 0
        self.puts_dropped = 0

    async def get(self, stream: str, part: str) -> tuple[str | None, bytes | None]:
        """The stream's generation, to store chunks under, and the chunk of that name; None if
        unavailable. To be called before the origin is asked for the chunk."""
        generation_at, chunk_at = generation_key(stream), chunk_key(stream, part)
        last = _SEAL_BYTES + self._max_value_bytes - 1
        # Ranges, because a poisoned value could be of any size.
        replies = await self.link.call(
            ("GETRANGE", generation_at, 0, _GENERATION_BYTES), ("GETRANGE", chunk_at, 0, last)
        )
        generation = None
        if replies is not None:
            generation = await self._settle_generation(generation_at, replies[0])
        if replies is None or generation is None:
            self.misses += 1
            return None, None
        return generation, self._open(stream, chunk_at, generation.encode(), replies[1])

    async def put(
        self, stream: str, generation: str | None, part: str, value: bytes, ttl_s: float
    ) -> bool:
        """Store a chunk that was fetched under this generation."""
        if not self._may_put(generation, value, ttl_s):
            return False
        token = (generation or "").encode()
        key = chunk_key(stream, part)
        sealed = seal(self._secret, stream, key, token, value)
        replies = await self.link.call(
            ("SET", key, sealed, "PX", max(1, int(ttl_s * 1000))),
            ("EXPIRE", generation_key(stream), GENERATION_TTL_SECS),
        )
        done = replies is not None and replies[0] == b"OK"
        self.stored += done
        return done

    def put_soon(
        self, stream: str, generation: str | None, part: str, value: bytes, ttl_s: float
    ) -> bool:
        """Store it in the background; False if it is not worth it or too much is pending."""
        if not self._may_put(generation, value, ttl_s):
            return False
        if self._put_bytes + len(value) > MAX_PUT_BYTES:
            self.puts_dropped += 1
            return False
        work = self.put(stream, generation, part, value, ttl_s)
        task = asyncio.create_task(work, name="redis put")
        self._puts.add(task)
        self._put_bytes += len(value)
        task.add_done_callback(lambda task: self._end_put(task, len(value)))
        return True

    async def purge(self, stream: str) -> bool:
        """Make every chunk of the stream unreadable for all gateways; a failed purge is retried.

        Until then this gateway reads nothing from Redis. Others may, until the chunks expire.
        """
        key, done = generation_key(stream), False
        try:
            replies = await self.link.call(("DEL", key))
            done = replies is not None and isinstance(replies[0], int)
        finally:  # also if the writer disconnected meanwhile
            if not done:
                self._owe(key)
                self.link.leave_alone()
        return done

    async def close(self) -> None:
        """Wait for pending puts (each has a time limit) and close the connections."""
        await asyncio.gather(*self._puts, return_exceptions=True)
        await self.link.close()

    def _may_put(self, generation: str | None, value: bytes, ttl_s: float) -> bool:
        fits = len(value) <= self._max_value_bytes and ttl_s > 0
        return generation is not None and fits and self.link.available

    def _end_put(self, task: asyncio.Task[bool], size: int) -> None:
        self._puts.discard(task)
        self._put_bytes -= size

    async def _settle_generation(self, key: str, found: Reply) -> str | None:
        """The existing generation, or a new one; if two gateways create one, the first wins."""
        if is_generation(found):
            return found.decode()
        create: Command = ("SET", key, new_generation(), "EX", GENERATION_TTL_SECS)
        if found == b"":
            create += ("NX",)
        else:  # not a value of ours
            self.rejected += 1
        replies = await self.link.call(create, ("GETRANGE", key, 0, _GENERATION_BYTES))
        token = replies[1] if replies else None
        return token.decode() if is_generation(token) else None

    def _open(self, stream: str, key: str, token: bytes, sealed: Reply) -> bytes | None:
        """The chunk, if it is sealed for this place and generation."""
        if sealed == b"" or is_outdated(token, sealed):
            self.misses += 1
            return None
        value = unseal(self._secret, stream, key, token, sealed)
        if value is None:
            self.rejected += 1
        else:
            self.hits += 1
        return value

    def _owe(self, key: str) -> None:
        if len(self._owed) < MAX_OWED:
            self._owed.add(key)
        else:
            self._owes_all = True

    async def _repay(self) -> bool:
        """Retry failed purges. No chunk is read before they succeed."""
        while self._owes_all or self._owed:
            batch = list(islice(self._owed, REPAY_BATCH))
            done = await (self._forget_all() if self._owes_all else self._forget(batch))
            if not done:
                return False
            self._owed.difference_update(batch)
        return True

    async def _forget_all(self) -> bool:
        self._owes_all = False
        cursor: bytes | int = 0
        while cursor != b"0":
            scan = ("SCAN", cursor, "MATCH", f"{GENERATION_KEYS}*", "COUNT", REPAY_BATCH)
            replies = await self.link.attempt(scan)
            found = replies[0] if replies else None
            if not isinstance(found, list) or not await self._forget(found[1]):
                self._owes_all = True
                return False
            cursor = found[0]
        return True

    async def _forget(self, keys: list[str]) -> bool:
        if not keys:
            return True
        replies = await self.link.attempt(("DEL", *keys))
        return replies is not None and isinstance(replies[0], int)


class _Packed(msgspec.Struct, array_like=True):
    """An entry as the value of a chunk."""

    content_type: str
    next_offset: str
    up_to_date: bool
    closed: bool
    origin_etag: str
    incarnation: str
    body: bytes
    immutable: bool
    stored_at: float
    fresh_until: float
    stale_until: float
    error_until: float
    snapshot_offset: str = ""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Packed).decode


def pack_entry(entry: Entry) -> bytes:
    return _encode(_Packed(*(getattr(entry, name) for name in _Packed.__struct_fields__)))


def unpack_entry(stream: str, part: str, value: bytes | None, *, public: bool) -> Entry | None:
    """None if the value is missing or malformed."""
    if value is None:
        return None
    try:
        packed = _decode(value)
    except msgspec.DecodeError:
        return None
    return Entry(stream, part, public=public, **msgspec.structs.asdict(packed))


def generation_key(stream: str) -> str:
    return f"{GENERATION_KEYS}{{{_digest(stream)}}}"


def chunk_key(stream: str, part: str) -> str:
    """The digest has a fixed length and the part follows it, so keys are unique.

    The braces let a Redis cluster keep a stream's keys together.
    """
    return f"{CHUNK_KEYS}{{{_digest(stream)}}}:{part}"


def _digest(stream: str) -> str:
    return blake2b(stream.encode(), digest_size=20).hexdigest()


def new_generation() -> str:
    return secrets.token_hex(_GENERATION_BYTES // 2)


def is_generation(token: Reply) -> TypeGuard[bytes]:
    return isinstance(token, bytes) and _GENERATION.fullmatch(token) is not None


def derive_key(secret: str) -> bytes:
    """From a secret of any length; the empty one is well known."""
    return blake2b(secret.encode(), digest_size=64, person=b"weir-shared-key").digest()


def seal(secret: bytes, stream: str, key: str, token: bytes, value: bytes) -> bytes:
    """Generation, nonce, ciphertext with its tag. AES-GCM is by far the cheapest seal: 0.14 ms per
    MiB, against 1.3 ms for keyed BLAKE2b."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return token + nonce + _cipher(secret, stream, key, token).encrypt(nonce, value, None)


def unseal(secret: bytes, stream: str, key: str, token: bytes, sealed: Reply) -> bytes | None:
    """The value, unless it was sealed with another key or for another place or generation."""
    if not isinstance(sealed, bytes) or sealed[:_GENERATION_BYTES] != token:
        return None
    nonce, text = sealed[_GENERATION_BYTES:_HEAD_BYTES], memoryview(sealed)[_HEAD_BYTES:]
    try:
        return _cipher(secret, stream, key, token).decrypt(nonce, text, None)
    except (InvalidTag, ValueError):  # ValueError: too short for a nonce
        return None


def is_outdated(token: bytes, sealed: Reply) -> bool:
    """Whether it was stored before the last purge of the stream: outdated, not an attack."""
    if not isinstance(sealed, bytes):
        return False
    other = sealed[:_GENERATION_BYTES]
    return other != token and is_generation(other)


def _cipher(secret: bytes, stream: str, key: str, token: bytes) -> AESGCM:
    """A key per place and generation: values cannot be moved, and nonces cannot run out.

    The stream's full name counts as well, because its digest in the Redis key could collide.
    """
    place = b"".join(b"%d:%b" % (len(part), part) for part in (key.encode(), stream.encode()))
    derived = blake2b(place + token, digest_size=32, key=secret, person=b"weir-chunk-1")
    return AESGCM(derived.digest())
