"""The keys that tokens are verified with: a JWKS file or URL, kept fresh in the background.

A key is bound to one algorithm when it is loaded, whatever a token says. The last good set stays
in use while its source is unavailable. An unknown key id triggers a fetch, but concurrent requests
share one attempt, and every attempt starts the cooldown, not just a successful one.
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

import aiohttp
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import Algorithm, ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from jwt.exceptions import InvalidKeyError
from yarl import URL

from gateway.config import AuthConfig
from gateway.rules.claims import is_key_id, read_json
from gateway.tasks import cancel
from wire.settings import SettingsError

log = logging.getLogger("weir.gateway")

PublicKey = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey

MAX_BYTES = 256 * 1024
MAX_KEYS = 100
RSA_BITS = range(2048, 8193)
FETCH_TIMEOUT_SECS = 5.0
FILE_CHECK_SECS = 5.0
FILE_COOLDOWN_SECS = 1.0
RETRY_SECS = (1.0, 2.0, 5.0, 10.0, 30.0)  # after failures in a row

_PRIVATE_MEMBERS = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
_KINDS: Mapping[tuple[str, str | None], tuple[str, Algorithm]] = {
    ("RSA", None): ("RS256", RSAAlgorithm(RSAAlgorithm.SHA256)),
    ("EC", "P-256"): ("ES256", ECAlgorithm(ECAlgorithm.SHA256)),
    ("OKP", "Ed25519"): ("EdDSA", OKPAlgorithm()),
}
_VERIFIERS = dict(_KINDS.values())


class KeysError(Exception):
    """The source cannot be read, or what it holds is not a key set."""


class KeysUnavailable(Exception):
    """No key set was ever loaded."""


@dataclass(frozen=True, slots=True)
class BoundKey:
    """A public key with its id and the one algorithm it verifies."""

    key_id: str  # empty: only for tokens that name no key
    algorithm: str
    public: PublicKey
    identity: bytes  # of id, algorithm and key together

    def verify(self, signed: bytes, signature: bytes) -> bool:
        return _VERIFIERS[self.algorithm].verify(signed, self.public, signature)


@dataclass(frozen=True, slots=True)
class KeySet:
    keys: tuple[BoundKey, ...] = ()
    by_id: Mapping[str, BoundKey] = field(init=False)
    identities: frozenset[bytes] = field(init=False)

    def __post_init__(self) -> None:
        named = {key.key_id: key for key in self.keys if key.key_id}
        object.__setattr__(self, "by_id", MappingProxyType(named))
        object.__setattr__(self, "identities", frozenset(key.identity for key in self.keys))

    def find(self, key_id: str | None, algorithm: str) -> BoundKey | None:
        """Without an id: the key of that algorithm, if there is exactly one."""
        if key_id is not None:
            return self.by_id.get(key_id)
        fitting = [key for key in self.keys if key.algorithm == algorithm]
        return fitting[0] if len(fitting) == 1 else None


def parse_jwks(data: bytes) -> KeySet:
    """Parse a JWKS; unusable keys are skipped with a warning."""
    try:
        entries = read_json(data).get("keys")
    except ValueError as error:
        raise KeysError(f"is not a JSON object: {error}") from None
    if not isinstance(entries, list):
        raise KeysError("has no list of keys")
    if len(entries) > MAX_KEYS:
        raise KeysError(f"has more than {MAX_KEYS} keys")
    keys: dict[object, BoundKey] = {}
    for index, entry in enumerate(entries):
        try:
            key = _parse_key(entry)
            _require(key.key_id not in keys, "has the same id as another key")
            keys[key.key_id or index] = key
        except KeysError as error:
            log.warning("ignoring key %d of the JWKS: it %s", index, error)
    return KeySet(tuple(keys.values()))


def _parse_key(entry: object) -> BoundKey:
    if not isinstance(entry, dict):
        raise KeysError("is not an object")
    algorithm, reader = _kind_of(entry)
    _require(entry.get("use", "sig") == "sig", "is not for signatures")
    _require(_may_verify(entry.get("key_ops")), "is not for verifying")
    _require(entry.get("alg", algorithm) == algorithm, "names a different algorithm")
    _require(_PRIVATE_MEMBERS.isdisjoint(entry), "is a private key")
    key_id = entry.get("kid", "")
    named = isinstance(key_id, str) and (not key_id or is_key_id(key_id))
    _require(named, "has an id that no token can have")
    public = _read_public(reader, entry)
    return BoundKey(key_id, algorithm, public, _identify(key_id, algorithm, public))


def _kind_of(entry: dict[str, Any]) -> tuple[str, Algorithm]:
    for (kty, crv), kind in _KINDS.items():
        if (entry.get("kty"), entry.get("crv")) == (kty, crv):
            return kind
    raise KeysError("is of an unsupported type")


def _may_verify(operations: object) -> bool:
    return operations is None or (isinstance(operations, list) and "verify" in operations)


def _read_public(reader: Algorithm, entry: dict[str, Any]) -> PublicKey:
    try:
        key = reader.from_jwk(entry)
    except (InvalidKeyError, UnsupportedAlgorithm, ValueError, TypeError, KeyError):
        raise KeysError("is damaged") from None
    if not isinstance(key, RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey):
        raise KeysError("is of an unsupported type")
    if isinstance(key, RSAPublicKey):
        _require(key.key_size in RSA_BITS, f"has {key.key_size} bits")
    return key


def _identify(key_id: str, algorithm: str, key: PublicKey) -> bytes:
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(b"\0".join((key_id.encode(), algorithm.encode(), der))).digest()


def _require(ok: bool, problem: str) -> None:
    if not ok:
        raise KeysError(problem)


class Source(Protocol):
    """Where a JWKS comes from."""

    name: str  # for messages: no password, no query
    refresh_s: float
    cooldown_s: float

    async def read(self) -> bytes:
        """The document; raises KeysError."""


class FileSource:
    """The file may be replaced or rewritten at any time; checking it is cheap."""

    def __init__(self, path: str, refresh_s: float, cooldown_s: float) -> None:
        self.name = path
        self.refresh_s = min(refresh_s, FILE_CHECK_SECS)
        self.cooldown_s = min(cooldown_s, FILE_COOLDOWN_SECS)

    async def read(self) -> bytes:
        return await asyncio.to_thread(self._read)

    def _read(self) -> bytes:
        try:
            with open(self.name, "rb") as file:
                data = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise KeysError(f"cannot be read ({error.strerror})") from None
        _require(len(data) <= MAX_BYTES, f"is larger than {MAX_BYTES} bytes")
        return data


class UrlSource:
    def __init__(self, url: str, refresh_s: float, cooldown_s: float) -> None:
        self._url = URL(url)
        self.name = str(self._url.with_user(None).with_query(None))
        self.refresh_s = refresh_s
        self.cooldown_s = cooldown_s

    async def read(self) -> bytes:
        try:
            async with asyncio.timeout(FETCH_TIMEOUT_SECS):
                return await self._fetch()
        except TimeoutError:
            raise KeysError(f"did not respond within {FETCH_TIMEOUT_SECS:.0f} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise KeysError(f"cannot be fetched ({type(error).__name__})") from None

    async def _fetch(self) -> bytes:
        # Fetches are rare, so no connection is kept. Nothing is decompressed, so size limits hold.
        headers = {"Accept": "application/jwk-set+json, application/json"}
        headers["Accept-Encoding"] = "identity"
        jar = aiohttp.DummyCookieJar()
        async with (
            aiohttp.ClientSession(cookie_jar=jar, auto_decompress=False) as session,
            session.get(self._url, headers=headers, allow_redirects=False) as response,
        ):
            _require(response.status == 200, f"answered {response.status}")
            data = bytearray()
            async for piece in response.content.iter_any():
                data += piece
                _require(len(data) <= MAX_BYTES, f"is larger than {MAX_BYTES} bytes")
            return bytes(data)


def source_of(auth: AuthConfig) -> Source:
    remote = auth.jwks.lower().startswith(("http://", "https://"))
    make = UrlSource if remote else FileSource
    return make(auth.jwks, auth.jwks_refresh_secs, auth.jwks_cooldown_secs)


class Keys:
    """The current key set. `generation` grows whenever the set changes."""

    def __init__(self, source: Source, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._clock = clock
        self._current: KeySet | None = None
        self._document = b""  # digest of the document it was parsed from
        self._problem = ""
        self._attempted_at = -float("inf")
        self._flight: asyncio.Task[None] | None = None
        self._timer: asyncio.Task[None] | None = None
        self.generation = 0
        self.attempts = 0
        self.failures = 0  # in total
        self.failed_in_a_row = 0

    @property
    def ready(self) -> bool:
        """Whether tokens can be verified."""
        return self._current is not None

    @property
    def current(self) -> KeySet:
        return self._current or KeySet()

    async def start(self) -> None:
        """Load the keys: a file must be valid, a URL may become available later."""
        await self.refresh()
        if isinstance(self._source, FileSource) and not self.current.keys:
            problem = "contains no usable key" if self.ready else self._problem
            raise SettingsError(f"auth.jwks {self._source.name}", problem)
        self._timer = asyncio.create_task(self._keep_fresh(), name="jwks timer")

    async def stop(self) -> None:
        await cancel(self._timer, self._flight)

    async def find(self, key_id: str | None, algorithm: str) -> BoundKey | None:
        """The key for a token's header; an unknown key may just have been published."""
        if self._current is None:
            raise KeysUnavailable
        key = self._current.find(key_id, algorithm)
        if key is None and self._may_ask():
            await self.refresh()
            key = self.current.find(key_id, algorithm)
        return key

    def _may_ask(self) -> bool:
        if self._flight is not None:
            return True
        return self._clock() - self._attempted_at >= self._source.cooldown_s

    async def refresh(self) -> None:
        """Join the running attempt, or start one; a cancelled caller does not end it."""
        if self._flight is None:
            self._attempted_at = self._clock()
            self._flight = asyncio.create_task(self._attempt(), name="jwks fetch")
        await asyncio.shield(self._flight)

    async def _attempt(self) -> None:
        self.attempts += 1
        try:
            self._adopt(await self._source.read())
        except Exception as error:  # whatever it is, the timer must keep running
            self._note_failure(error)
        else:
            self.failed_in_a_row = 0
        finally:
            self._flight = None

    def _adopt(self, data: bytes) -> None:
        """An empty set is accepted: its owner removed every key."""
        document = hashlib.sha256(data).digest()
        if document == self._document:
            return
        fresh = parse_jwks(data)
        if self._current is None or fresh.identities != self._current.identities:
            self.generation += 1
            log.info("%d keys from %s", len(fresh.keys), self._source.name)
        self._current, self._document = fresh, document

    def _note_failure(self, error: Exception) -> None:
        self._problem = str(error) if isinstance(error, KeysError) else f"failed: {error!r}"
        self.failures += 1
        self.failed_in_a_row += 1
        kept = "keeping the last good keys" if self.ready else "no tokens can be verified"
        log.warning("%s %s: %s", self._source.name, self._problem, kept)

    async def _keep_fresh(self) -> None:
        while True:
            await asyncio.sleep(self._pause_s())
            await self.refresh()

    def _pause_s(self) -> float:
        if not self.failed_in_a_row:
            return self._source.refresh_s
        step = min(self.failed_in_a_row, len(RETRY_SECS)) - 1
        return min(RETRY_SECS[step], self._source.refresh_s)
