"""Live-read cursors: which 20-second interval a response belongs to (DS 8.1).

A client that is not behind gets a later cursor. The step is a keyed hash, not a random number, so
every process responds with the same one and caches in front keep collapsing requests.
"""

from hashlib import blake2b

from protocol.errors import ProtocolError

INTERVAL_SECS = 20
EPOCH_SECS = 1_728_432_000  # 2024-10-09T00:00:00Z
MAX_STEP = 180  # 3600 s of intervals

MAX_DIGITS = 32  # more than any clock has, in whatever unit
_MAX_KEY_BYTES = 64  # limit of blake2b


def next_cursor(now_s: float, client_cursor: str | None, jitter_key: bytes) -> int:
    """The cursor to send: the current interval, or a step past a client that is already there.

    Anything but a number counts as absent; a number never leads backwards.
    """
    current = max(0, int((now_s - EPOCH_SECS) // INTERVAL_SECS))
    if client_cursor is None:
        return current
    client = _parse(client_cursor)
    if client < current:
        return current
    return client + _step(client, jitter_key)


def checked_cursor(token: str | None) -> str | None:
    """A client's cursor, if it is a number. A cursor that is too long is refused: treated as
    absent, it would lead backwards."""
    if token is None or not _is_number(token):
        return None
    if len(token) > MAX_DIGITS:
        raise ProtocolError(400, "invalid-cursor", f"`cursor` exceeds {MAX_DIGITS} digits.")
    return token


def _is_number(token: str) -> bool:
    return token.isascii() and token.isdigit()


def _parse(token: str) -> int:
    return int(token) if _is_number(token) and len(token) <= MAX_DIGITS else -1


def _step(client: int, jitter_key: bytes) -> int:
    key = jitter_key if len(jitter_key) <= _MAX_KEY_BYTES else blake2b(jitter_key).digest()
    digest = blake2b(b"%d" % client, digest_size=8, key=key).digest()
    return 1 + int.from_bytes(digest, "big") % MAX_STEP
