"""Whether the NATS servers sync every message to disk before they acknowledge it.

By default they sync every two minutes: a power cut at all of them can lose what was acknowledged.
A server says in its monitoring data which it does. One that does not sync is refused.
"""

import asyncio
import logging
from collections.abc import Sequence

import aiohttp

from wire.settings import SettingsError

log = logging.getLogger("weir.cluster")

ASK_SECS = 2.0
WAIT_SECS = 20.0
RETRY_SECS = 0.5

_URLS, _SYNC = "cluster.nats_monitor_urls", "cluster.journal_sync"


async def check_syncs(urls: Sequence[str]) -> None:
    """Raises SettingsError unless most servers were asked, and all of those sync always."""
    if not urls:
        text = f'must name every NATS server, or set {_SYNC} = "may-lose-on-power-cut"'
        raise SettingsError(_URLS, text)
    silent = set(urls)
    deadline = asyncio.get_running_loop().time() + WAIT_SECS
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ASK_SECS)) as session:
        while silent and asyncio.get_running_loop().time() < deadline:
            answers = await asyncio.gather(*(_syncs(session, url) for url in sorted(silent)))
            for url, always in zip(sorted(silent), answers, strict=True):
                if always is not None:
                    silent.discard(url)
                if always is False:
                    raise _refused(url)
            if silent:
                await asyncio.sleep(RETRY_SECS)
    if 2 * len(silent) >= len(urls):
        raise SettingsError(_URLS, f"no answer from {', '.join(sorted(silent))}")
    if silent:
        log.warning("could not check whether %s syncs always", ", ".join(sorted(silent)))


async def _syncs(session: aiohttp.ClientSession, url: str) -> bool | None:
    """None if it does not answer."""
    try:
        async with session.get(f"{url.rstrip('/')}/varz") as answer:
            found = await answer.json(content_type=None)
        return bool(found["jetstream"]["config"].get("sync_always", False))
    except (aiohttp.ClientError, TimeoutError, OSError):
        return None
    except (KeyError, TypeError, ValueError):
        raise SettingsError(_URLS, f"{url} is not a NATS server with JetStream") from None


def _refused(url: str) -> SettingsError:
    text = (
        f"the NATS server at {url} does not sync always: a power cut could lose acknowledged "
        f"appends. Set `sync_interval: always` in its jetstream section, or {_SYNC} = "
        '"may-lose-on-power-cut"'
    )
    return SettingsError(_URLS, text)
