"""What CDNs are told: tags, lifetimes, and purges that survive a CDN in trouble."""

import asyncio
import json
import re
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from pytest_aiohttp.plugin import AiohttpRawServer

from gateway import cdn
from gateway.cdn import PurgeHook, cdn_headers, fill_text, fill_url, is_public, stream_tag
from gateway.config import CdnConfig
from loadtest.peers.process import free_port
from tests.helpers.scripted_origin import until

# -- with an answer ------------------------------------------------------------------------------

names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=1024)


@pytest.mark.parametrize(
    ("stream", "tag"),
    [
        ("orders-2026.x_y-z", "weir-orders-2026.x_y-z"),
        ("a b,c", "weir-a~20b~2Cc"),
        ("a~20b", "weir-a~7E20b"),
        ("ß", "weir-~C3~9F"),
        ("/ds/b/s", "weir-~2Fds~2Fb~2Fs"),
    ],
)
def test_tags_are_readable(stream: str, tag: str) -> None:
    assert stream_tag(stream) == tag


@given(names)
def test_a_tag_is_the_same_in_headers_and_urls(name: str) -> None:
    """What a cache finds in the path of a purge is what it found beside the answer."""
    tag = stream_tag(name)
    assert re.fullmatch(r"[!-+\-.-~]{1,1024}", tag) and quote(tag, safe="") == tag
    assert fill_url("http://c/purge/{tag}?tag={tag}", name) == f"http://c/purge/{tag}?tag={tag}"


@given(names, names)
def test_different_streams_have_different_tags(one: str, other: str) -> None:
    assert (stream_tag(one) == stream_tag(other)) == (one == other)


def test_a_long_name_is_hashed_to_a_tag_of_its_own() -> None:
    long = stream_tag("ß" * 500)
    assert len(long) < 100 and long != stream_tag("ß" * 499 + "a")
    assert stream_tag(long.removeprefix("weir-")) != long


@pytest.mark.parametrize(
    ("patterns", "stream", "public"),
    [
        ([], "s", False),
        (["s"], "s", True),
        (["s"], "s/t", False),
        (["s"], "S", False),
        (["open/*"], "open/a/b", True),
        (["open/*"], "open", False),
        (["open/*"], "opened", False),
        (["a", "b*"], "bc", True),
        (["*"], "anything", True),
        (["/v1/stream/open/*"], "open/a", True),
        (["o*n"], "open", False),
        ([""], "s", False),
    ],
)
def test_public_is_what_a_pattern_names(patterns: Sequence[str], stream: str, public: bool) -> None:
    assert is_public(patterns, stream) is public


def test_nothing_is_said_unless_configured() -> None:
    assert cdn_headers(CdnConfig(), "s", "") == ()


def test_only_cacheable_answers_carry_a_lifetime() -> None:
    config = CdnConfig(tag_header="Cache-Tag", cache_control="max-age=60")
    tag = ("Cache-Tag", "weir-s")
    assert cdn_headers(config, "s", "max-age=60") == (tag, ("CDN-Cache-Control", "max-age=60"))
    assert cdn_headers(config, "s", "") == (tag,)


# -- templates -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "url"),
    [
        ("http://c/purge/{tag}", "http://c/purge/weir-a~2Fb~20c~3Fd"),
        ("http://c{path}", "http://c/v1/stream/a/b%20c%3Fd"),
        ("http://c/p?u=http://e{path}", "http://c/p?u=http://e%2Fv1%2Fstream%2Fa%2Fb%2520c%253Fd"),
        ("http://c/p?tag={tag}&x={y}", "http://c/p?tag=weir-a~2Fb~20c~3Fd&x={y}"),
    ],
)
def test_urls_are_filled_in(template: str, url: str) -> None:
    assert fill_url(template, "a/b c?d") == url


@given(names)
def test_a_filled_body_is_the_json_that_was_meant(name: str) -> None:
    body = json.loads(fill_text('{"tags": ["{tag}"], "files": ["http://e{path}"]}', name))
    assert list(body) == ["tags", "files"] and body["tags"] == [stream_tag(name)]


# -- purges --------------------------------------------------------------------------------------


class Cdn:
    """Takes purges; answers with the statuses it was given, then with 200."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, str, str]] = []
        self.statuses: list[int] = []
        self.open = asyncio.Event()
        self.open.set()
        self.port = 0

    async def answer(self, request: web.BaseRequest) -> web.Response:
        key, body = request.headers.get("Api-Key", ""), await request.text()
        self.seen.append((request.method, request.raw_path, key, body))
        status = self.statuses.pop(0) if self.statuses else 200
        await self.open.wait()
        location = {"Location": "/elsewhere"} if status == 302 else {}
        return web.Response(status=status, headers=location)

    def hook(self, template: str = "/purge/{tag}", **settings: Any) -> PurgeHook:
        url = f"http://127.0.0.1:{self.port}{template}"
        return PurgeHook(CdnConfig(purge_url=url, **settings), first_pause_s=0.001)


@pytest.fixture
async def edge(aiohttp_raw_server: AiohttpRawServer) -> Cdn:
    edge = Cdn()
    server = await aiohttp_raw_server(edge.answer, shutdown_timeout=0.1)
    edge.port = server.port or 0
    return edge


async def test_a_purge_is_made_as_the_template_says(edge: Cdn) -> None:
    hook = edge.hook(
        "/p/{tag}?u={path}",
        purge_method="PURGE",
        purge_header=("Api-Key: k-{tag}",),
        purge_body='{"tags":["{tag}"]}',
    )
    await hook.start()
    assert hook.purge("a b")
    await hook.stop()
    path = "/p/weir-a~20b?u=%2Fv1%2Fstream%2Fa%2520b"
    assert edge.seen == [("PURGE", path, "k-weir-a~20b", '{"tags":["weir-a~20b"]}')]
    assert (hook.purged, hook.found_nothing, hook.failed, hook.pending) == (1, 0, 0, 0)


@pytest.mark.parametrize("status", [500, 503, 429, 408])
async def test_a_cdn_in_trouble_is_asked_again(edge: Cdn, status: int) -> None:
    edge.statuses = [status, status]
    hook = edge.hook()
    await hook.start()
    hook.purge("s")
    await hook.stop()
    assert (len(edge.seen), hook.purged, hook.retried, hook.failed) == (3, 1, 2, 0)


async def test_retries_end(edge: Cdn) -> None:
    edge.statuses = [500] * 10
    hook = edge.hook(purge_retries=2)
    await hook.start()
    hook.purge("s")
    await hook.stop()
    assert (len(edge.seen), hook.purged, hook.retried, hook.failed) == (3, 0, 2, 1)


@pytest.mark.parametrize("status", [302, 400, 401, 403, 404])
async def test_a_refusal_is_final(edge: Cdn, status: int) -> None:
    edge.statuses = [status]
    hook = edge.hook()
    await hook.start()
    hook.purge("s")
    await hook.stop()
    assert (len(edge.seen), hook.purged, hook.failed) == (1, 0, 1)


@pytest.mark.parametrize("method", ["PURGE", "DELETE"])
async def test_what_is_not_there_is_purged(edge: Cdn, method: str) -> None:
    edge.statuses = [404]
    hook = edge.hook(purge_method=method)
    await hook.start()
    hook.purge("s")
    await hook.stop()
    assert (hook.purged, hook.found_nothing, hook.failed) == (1, 1, 0)


async def test_a_writer_never_waits_and_the_queue_is_bounded(
    edge: Cdn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cdn, "MAX_PENDING", 10)
    edge.open.clear()
    hook = edge.hook()
    await hook.start()
    assert [hook.purge(f"s{n}") for n in range(12)] == [True] * 10 + [False] * 2
    edge.open.set()
    await hook.stop()
    assert (hook.purged, hook.dropped, len(edge.seen)) == (10, 2, 10)


async def test_purges_of_one_stream_that_wait_are_one(edge: Cdn) -> None:
    edge.open.clear()
    hook = edge.hook()
    await hook.start()
    hook.purge("s")
    await until(lambda: len(edge.seen) == 1)
    assert all(hook.purge("s") for _ in range(5))  # the running one does not cover these
    edge.open.set()
    await hook.stop()
    assert len(edge.seen) == hook.purged == 2


async def test_a_stop_does_not_wait_for_ever(edge: Cdn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cdn, "FLUSH_SECS", 0.05)
    edge.open.clear()
    hook = edge.hook()
    await hook.start()
    for n in range(10):
        hook.purge(f"s{n}")
    began = time.monotonic()
    await hook.stop()
    assert time.monotonic() - began < 20
    assert (hook.purged, hook.failed) == (0, 10)
    assert not hook.purge("late")


@pytest.mark.parametrize("url", ["http://127.0.0.1:{port}/", "http://h:99999/", "http://[/"])
async def test_an_address_that_does_not_work_is_counted(url: str) -> None:
    config = CdnConfig(purge_url=url.replace("{port}", str(free_port())), purge_retries=1)
    hook = PurgeHook(config, first_pause_s=0.001)
    await hook.start()
    for n in range(8):
        hook.purge(f"s{n}")
    await hook.stop()
    assert (hook.purged, hook.failed) == (0, 8)


async def test_without_a_url_nothing_happens() -> None:
    hook = PurgeHook(CdnConfig())
    await hook.start()
    assert not hook.purge("s")
    await hook.stop()
    assert (hook.purged, hook.failed, hook.dropped) == (0, 0, 0)
