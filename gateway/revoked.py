"""Tokens that an operator has revoked, looked up in Redis."""

from collections.abc import Sequence
from itertools import islice

from cachetools import LRUCache

from gateway.redislink import FIRST_PAUSE_SECS, Batch, Command, Link, Reply

REVOKED_ID_KEYS = "weir:revoked:jti:"
REVOKED_SUBJECT_KEYS = "weir:revoked:sub:"

# Whether a token counts as revoked if Redis is unavailable and has not said so before. A Redis
# outage must not lock out every reader; a stolen token is limited by its short lifetime.
REVOKED_WHEN_UNKNOWN = False
REMEMBERED_REVOKED = 10_000


class Revoked:
    """Whether an operator has revoked a token, by its id or its subject:

        SET weir:revoked:jti:<id> 1 EX <seconds>        SET weir:revoked:sub:<subject> 1

    If Redis is unavailable, its last answer holds, else REVOKED_WHEN_UNKNOWN.
    """

    def __init__(
        self, url: str, timeout_s: float, *, first_pause_s: float = FIRST_PAUSE_SECS
    ) -> None:
        # A separate link: the store may distrust a Redis that can still be asked for revocations.
        self.link = Link(url, timeout_s, first_pause_s=first_pause_s, max_connections=2)
        self._batch = Batch(self.link)
        self._seen: LRUCache[bytes, bool] = LRUCache(REMEMBERED_REVOKED)
        self.unknown = 0  # answers given without Redis

    async def __call__(self, token_id: str, subject: str) -> bool:
        return (await self.many([(token_id, subject)]))[0]

    async def many(self, named: Sequence[tuple[str, str]]) -> list[bool]:
        """For each pair of a token's id and subject, in one call."""
        keys = [revoked_keys(*pair) for pair in named]
        commands: list[Command] = [("EXISTS", key) for some in keys for key in some]
        replies = iter(await self._batch.call(*commands) or ())
        return [self._judge(some, list(islice(replies, len(some)))) for some in keys]

    def _judge(self, keys: list[bytes], replies: list[Reply]) -> bool:
        known = [self._learn(*pair) for pair in zip(keys, replies, strict=False)]
        unknown = len(known) < len(keys) or not all(known)
        self.unknown += unknown
        return any(key in self._seen for key in keys) or (unknown and REVOKED_WHEN_UNKNOWN)

    def _learn(self, key: bytes, reply: Reply) -> bool:
        """Remember the reply of Redis, if any."""
        if not isinstance(reply, int):
            return False
        if reply:
            self._seen[key] = True
        else:
            self._seen.pop(key, None)
        return True

    async def close(self) -> None:
        await self.link.close()
        await self._batch.close()


def revoked_keys(token_id: str, subject: str) -> list[bytes]:
    """Keys as bytes: a token may contain a lone surrogate, which must not break the call."""
    named = ((REVOKED_ID_KEYS, token_id), (REVOKED_SUBJECT_KEYS, subject))
    return [(prefix + name).encode(errors="surrogatepass") for prefix, name in named if name]
