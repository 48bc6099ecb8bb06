"""`weir cluster`: look at a cluster of origins. `status` is what its nodes say.

Exit codes of `status`: 0 if every shard is served, 1 if not, 2 if no node answers.
"""

import argparse
import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from weir.client.access import DATA
from weir.cluster.clusterfile import FILE, ClusterFile, read_file
from weir.cluster.status import Answer, Entry, merge_answers, render_status, unserved
from weir.exits import warn
from wire.settings import SettingsError

PATH = "/cluster/status"
ASK_SECS = 3.0
HEALTHY, NOT_SERVED, NO_ANSWER = 0, 1, 2


def run(arguments: argparse.Namespace) -> int:
    return {"status": show_status}[arguments.action](arguments)


def show_status(arguments: argparse.Namespace) -> int:
    file = None if arguments.url else _read(Path(arguments.data_dir or DATA))
    urls = [arguments.url.rstrip("/")] if arguments.url else [node.url for node in _nodes(file)]
    answers = asyncio.run(ask_nodes(urls))
    if not answers:
        warn(f"no node answers at {', '.join(urls)}")
        return NO_ANSWER
    status = merge_answers(answers, map(msgspec.to_builtins, _nodes(file)))
    if file is not None:
        status |= servers_of(file)
    if arguments.json:
        print(msgspec.json.encode(status).decode())
    else:
        print("\n".join(render_status(status, all_shards=arguments.shards)))
    return NOT_SERVED if unserved(status) or not status["shards"] else HEALTHY


def _read(data_dir: Path) -> ClusterFile:
    file = read_file(data_dir)
    if file is None:
        path = data_dir / FILE
        raise SettingsError(str(path), "is not there: name the cluster with --data-dir or --url")
    return file


def _nodes(file: ClusterFile | None) -> Iterable[Any]:
    return () if file is None else file.nodes


def servers_of(file: ClusterFile) -> Entry:
    """The processes of this machine that are not nodes."""
    servers = {"nats": file.nats, "s3": file.s3, "gateways": file.gateways}
    return {key: msgspec.to_builtins(value) for key, value in servers.items()}


async def ask_nodes(urls: list[str]) -> list[Answer]:
    """The answers of these nodes, and of those that they name."""
    timeout = aiohttp.ClientTimeout(total=ASK_SECS)
    answers: list[Answer] = []
    asked: set[str] = set()
    async with aiohttp.ClientSession(timeout=timeout) as session:
        while todo := [url for url in dict.fromkeys(urls) if url not in asked]:
            asked.update(todo)
            told = await asyncio.gather(*(_ask(session, url) for url in todo))
            answers += (answer for answer in told if answer is not None)
            urls = [node["url"] for answer in answers for node in answer.nodes if node.get("url")]
    return list({answer.node: answer for answer in answers}.values())


async def _ask(session: aiohttp.ClientSession, url: str) -> Answer | None:
    try:
        async with session.get(url + PATH, raise_for_status=True) as answer:
            return msgspec.json.decode(await answer.read(), type=Answer)
    except (aiohttp.ClientError, TimeoutError, msgspec.MsgspecError):
        return None
