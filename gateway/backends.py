"""What a worker depends on: files, the origin, Redis, keys, the CDN. Opened in order, and closed in
reverse order, also when opening fails halfway."""

import logging
import socket
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from gateway.accesslog import AccessLog, open_access_log
from gateway.cdn import PurgeHook
from gateway.config import GatewayConfig
from gateway.jwks import Keys, source_of
from gateway.localnotices import LocalNotices
from gateway.notices import Notices, SilentNotices
from gateway.rediscache import RedisCache
from gateway.redisnotices import RedisNotices
from gateway.revoked import Revoked
from gateway.spool import Spools
from gateway.tokens import Tokens
from gateway.upstream import Upstream
from gateway.watch import Watch
from wire.settings import SettingsError

_log = logging.getLogger("weir.gateway")

NO_REDIS_KEY = (
    "no cache.redis_key: anyone who can write to Redis can make this gateway serve any bytes for "
    "any stream; set the same secret on all gateways"
)


@dataclass(frozen=True, slots=True)
class Backends:
    name: str  # of this gateway, in its log
    log: AccessLog
    upstream: Upstream
    spools: Spools
    redis_cache: RedisCache | None
    revoked: Revoked | None
    keys: Keys | None
    tokens: Tokens | None
    watch: Watch
    notices: Notices  # started by their consumer
    hook: PurgeHook


async def open_backends(
    config: GatewayConfig, worker: int, run_dir: Path | None, opened: AsyncExitStack
) -> Backends:
    """Raises SettingsError."""
    cache, revoked, keys, tokens = config.cache, None, None, None
    name = config.gateway.name or _host_name()
    log = _open_log(config, name, worker)
    opened.push_async_callback(log.close)
    upstream = Upstream(config)
    await upstream.start()
    opened.push_async_callback(upstream.close)
    spools = _open_spools(config)
    opened.callback(spools.close)
    redis_cache = _open_redis_cache(config)
    if redis_cache is not None:
        opened.push_async_callback(redis_cache.close)
    if config.auth.revocation:
        revoked = Revoked(cache.redis_url, cache.redis_timeout_secs)
        opened.push_async_callback(revoked.close)
    if config.auth.mode != "off":
        keys = Keys(source_of(config.auth))
        opened.push_async_callback(keys.stop)
        await keys.start()
        tokens = Tokens(config.auth, keys, revoked)
    watch = Watch(None if tokens is None else tokens.withdrawn)
    opened.push_async_callback(watch.stop)
    watch.start()
    hook = PurgeHook(config.cdn)
    opened.push_async_callback(hook.stop)
    await hook.start()
    notices = _make_notices(config, worker, run_dir)
    return Backends(
        name, log, upstream, spools, redis_cache, revoked, keys, tokens, watch, notices, hook
    )


def _open_log(config: GatewayConfig, name: str, worker: int) -> AccessLog:
    try:
        return open_access_log(config.gateway.access_log, name, worker)
    except (OSError, ValueError) as error:
        raise SettingsError("gateway.access_log", str(error)) from error


def _open_spools(config: GatewayConfig) -> Spools:
    spools = Spools(config)
    try:
        spools.try_folder()
    except OSError as error:
        raise SettingsError("gateway.spool_dir", str(error)) from error
    return spools


def _open_redis_cache(config: GatewayConfig) -> RedisCache | None:
    cache = config.cache
    if not cache.redis_url:
        return None
    if not cache.redis_key:
        _log.warning(NO_REDIS_KEY)
    return RedisCache(cache.redis_url, cache.redis_timeout_secs, cache.redis_key)


def _make_notices(config: GatewayConfig, worker: int, run_dir: Path | None) -> Notices:
    if config.cache.redis_url:
        return RedisNotices(config.cache.redis_url)
    if run_dir is not None and config.gateway.workers > 1:
        return LocalNotices(run_dir, worker)
    return SilentNotices()


def _host_name() -> str:
    allowed = (
        c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in socket.gethostname()
    )
    return "".join(allowed)[:64] or "gateway"
