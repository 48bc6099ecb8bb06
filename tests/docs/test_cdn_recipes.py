"""The recipes of docs/cdn.md, run by the real nginx and the real Varnish in front of our gateway.

The token that the caches ask by may do everything here, which is more than the page says: what a
stranger is refused, he is refused by the recipe and not by the token's scope.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gateway.config import ServingConfig
from tests.docs.caches import NGINX, PACKAGES, VARNISH, Cache, make_cache, recipe
from tests.docs.snippets import ROOT
from tests.helpers.gateway import KEY, LocalGateway, TokenClient, bearer, make_gateway_config
from tests.helpers.keys import make_token
from tests.helpers.origin import LocalOrigin, make_config
from tests.helpers.rawhttp import Connection, EventStream, Response, wait_until
from tests.helpers.scripted_origin import Answer, ScriptedOrigin, until
from tests.scenarios.crowd import all_answers, close_all, connect

CROWD = 20
COOKIE = "session"
TEXT = {"Content-Type": "text/plain"}
WRITER = make_token(KEY, sub="writer", ttl=86_400)
OF_CACHE = make_token(KEY, sub="cache", ttl=86_400)


@dataclass(frozen=True, slots=True)
class Site:
    """A cache in front of a gateway in front of an origin; `port` is the cache's."""

    gateway: LocalGateway
    cache: Cache

    @property
    def port(self) -> int:
        return self.cache.port

    def client(self, token: str | None = None) -> TokenClient:
        """Through the cache, as a stranger unless there is a token."""
        return TokenClient(self.port, token)

    def requests(self, **labels: str) -> float:
        """That came to the gateway."""
        return self.gateway.metric("requests", **labels)

    def await_purges(self) -> None:
        """Until none is on its way."""
        self.gateway.wait(self.gateway.gateway.backends.hook._queue.join())

    def fill(self, name: str, *bodies: bytes) -> str:
        """Make a stream, past the cache; its last offset."""
        with self.gateway.client() as client:
            offset = client.create(name)
            self.await_purges()  # else one might find what is read in between
            for body in bodies:
                offset = client.append(name, body)
        return offset

    def read_anew(self, client: TokenClient, name: str) -> Response:
        """A read that the cache cannot answer, seen and counted at the gateway."""
        before = self.requests(mode="catch-up")
        answer = client.read(name)
        wait_until(lambda: self.requests(mode="catch-up") > before)
        return answer


@contextmanager
def running_site(folder: Path, name: str, **gateway: Any) -> Iterator[Site]:
    cache = make_cache(name, folder / "cache", OF_CACHE)
    origin = LocalOrigin(make_config(folder / "data", storage={"chunk_bytes": 4}))
    origin.start()
    try:
        config = make_gateway_config(
            f"http://127.0.0.1:{origin.port}",
            cdn=cache.settings(),
            auth={"cookie": COOKIE},
            gateway=gateway,
        )
        with LocalGateway(config) as served, cache.run(served.port):
            yield Site(served, cache)
    finally:
        origin.stop()


@pytest.fixture(scope="module", params=[NGINX, VARNISH])
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp(request.param)
    with running_site(folder, request.param, long_poll_timeout_secs=60.0) as running:
        yield running


# -- public streams ------------------------------------------------------------------------------


def test_a_second_read_of_a_public_stream_is_answered_by_the_cache(site: Site) -> None:
    site.fill("news/a", b"one.", b"two.")
    with site.client() as stranger, site.client(WRITER) as known:
        first = site.read_anew(stranger, "news/a")
        assert (first.status, first.body) == (200, b"one.")
        before = site.requests(mode="catch-up")
        for client in (stranger, known) * 5:
            assert client.read("news/a").body == b"one."
        assert site.requests(mode="catch-up") == before


def test_a_cookie_with_a_token_does_not_meet_that_of_the_cache(site: Site) -> None:
    site.fill("news/cookie", b"one.", b"two.")
    with site.client() as reader:
        answer = reader.read("news/cookie", cookie=f"{COOKIE}={WRITER}")
        assert (answer.status, answer.body) == (200, b"one.")


async def test_long_polls_that_wait_become_one_request(site: Site) -> None:
    tail = site.fill("news/live", b"one.")
    before = site.requests(mode="long-poll")
    crowd = await connect(site.port, CROWD)
    for caller in crowd:
        caller.ask("news/live", f"offset={tail}&live=long-poll", token=None)
    await until(lambda: site.gateway.metric("live_readers") > 0)
    with site.client() as stranger, site.gateway.client() as writer:
        assert stranger.read("news/live").status == 200  # the cache has seen the others, too
        writer.append("news/live", b"two.")
    answers = await all_answers(crowd)
    await close_all(crowd)
    assert {(answer.status, answer.body) for answer in answers} == {(200, b"two.")}
    wait_until(lambda: site.requests(mode="long-poll") > before)
    assert site.requests(mode="long-poll") == before + 1


@pytest.mark.parametrize(("name", "token"), [("news/events", None), ("secret/events", WRITER)])
def test_an_event_arrives_before_the_event_stream_ends(
    site: Site, name: str, token: str | None
) -> None:
    site.fill(name, b"one.")
    with EventStream(site.port, name, headers=bearer(token)) as events:
        await_data(events, "one.")
        with site.gateway.client() as writer:
            writer.append(name, b"two.")
        await_data(events, "two.")


def await_data(events: EventStream, expected: str) -> None:
    seen = ""
    while seen != expected:
        seen += "".join(event.data for event in events.next_write() if event.kind == "data")


def test_a_tail_is_not_kept(site: Site) -> None:
    tail = site.fill("news/tail", b"one.")
    with site.client() as stranger, site.gateway.client() as writer:
        for _ in range(2):
            assert stranger.read("news/tail", tail).body == b""
        for body in (b"two.", b"more"):
            writer.append("news/tail", body)
            assert stranger.read("news/tail", tail).body == b"two."
        assert stranger.read("news/tail", "now").body == b""


@pytest.mark.parametrize("name", [NGINX, VARNISH])
def test_a_long_poll_that_times_out_is_not_kept(name: str, tmp_path: Path) -> None:
    with running_site(tmp_path, name, long_poll_timeout_secs=0.5) as site:
        tail = site.fill("news/quiet", b"one.")
        query = f"offset={tail}&live=long-poll"
        with site.client() as stranger, site.gateway.client() as writer:
            for _ in range(2):
                assert stranger("GET", "news/quiet", query=query).status == 204
            writer.append("news/quiet", b"two.")
            assert stranger("GET", "news/quiet", query=query).body == b"two."


def test_a_stream_that_is_not_there_is_seen_once_it_is(site: Site) -> None:
    with site.client() as stranger:
        assert stranger.read("news/later").status == 404
        site.fill("news/later", b"one.")
        assert stranger.read("news/later").body == b"one."


@pytest.mark.parametrize("heading", [NGINX, VARNISH])
def test_every_time_out_is_longer_than_a_long_poll(heading: str) -> None:
    waits = re.findall(r"_(?:timeout|age)\b\D*(\d+)s;", recipe(heading))
    assert len(waits) > 1
    assert min(map(int, waits)) > ServingConfig().long_poll_timeout_secs


# -- private streams -----------------------------------------------------------------------------


def test_a_private_stream_is_only_for_who_may_read_it(site: Site) -> None:
    site.fill("secret/a", b"one.", b"two.")
    elsewhere = make_token(KEY, scope="read:news/*")
    with site.client() as stranger, site.client(WRITER) as known, site.client(elsewhere) as other:
        for _ in range(2):
            assert stranger.read("secret/a").status == 401
            assert known.read("secret/a").body == b"one."
            assert other.read("secret/a").status == 403


# -- writing -------------------------------------------------------------------------------------


def test_who_has_a_token_writes_through_the_cache(site: Site) -> None:
    with site.client(WRITER) as writer:
        for name in ("news/written", "secret/written"):
            writer.create(name, body=b"one.")
            tail = writer.append(name, b"two.")
            assert writer("HEAD", name).next_offset == tail
            assert writer("DELETE", name).status == 204
            assert writer("HEAD", name).status == 404
    site.await_purges()


def test_a_head_tells_of_the_stream_and_not_of_a_kept_read(site: Site) -> None:
    tail = site.fill("news/head", b"one.", b"two.")
    with site.client(WRITER) as reader:
        for query in ("", "offset=-1"):
            assert reader("GET", "news/head", query=query).body == b"one."
            assert reader("HEAD", "news/head", query=query).next_offset == tail


@pytest.mark.parametrize("query", ["", "live=sse", "offset=-1&live=sse"])
def test_nobody_writes_by_the_token_of_the_cache(site: Site, query: str) -> None:
    name = f"news/guarded-{len(query)}"
    site.fill(name, b"one.")
    with site.gateway.client() as reader:
        for method, body in {"POST": b"more", "PUT": b"more", "DELETE": b"", "HEAD": b""}.items():
            for target in (name, f"{name}-new"):
                with site.client() as stranger:
                    assert stranger(method, target, TEXT, body, query).status == 401
        assert reader.read(name).body == b"one."
        assert reader.read(f"{name}-new").status == 404


# -- whose token ---------------------------------------------------------------------------------

BY_CACHE = (
    "/v1/stream/news/a",
    "/v1/stream/news/a?offset=-1",
    "/v1/stream/news/a?offset=-1&live=long-poll",
    "/v1/stream/news/a?offset=-1&live=sse",
    "/v1/stream/news/a?x=live=sse",
    "/v1/stream/news/a?x=/../",
    "/v1/stream/news/a.b/c-d_e~f/bootstrap",
)
NOT_BY_CACHE = (
    "/",
    "/v1/stream/news",
    "/v1/stream/newsroom/a",
    "/v1/stream/secret/a",
    "/v1/stream/secret/a?live=sse",
    "/v1/stream/secret/a?x=/v1/stream/news/a",
    "/v1/stream/secret?/v1/stream/news/a",
    "/v1/stream/secret/v1/stream/news/a",
    "/ds/news/v1/stream/news/a",
    "/v1/stream/news/../secret/a",
    "/v1/stream/news/../secret/a?live=sse",
    "/v1/stream/news/./../secret/a",
    "/v1/stream/news/..%2fsecret/a",
    "/v1/stream/news%2f..%2fsecret/a",
    "/v1/stream/news/%2e%2e/secret/a",
    "/v1/stream/news/%2E./secret/a",
    "/v1/stream/news/..;/secret/a",
    "/v1/stream/news/a/../../secret/a",
    "/v1/stream/news/..\\secret",
    "/v1/stream/news/%5c..%5c../secret",
    "/v1/stream/secret/../news/a",
    "/v1/stream/secret/%2e%2e/news/a",
    "/v1/stream/secret%2f..%2fnews/a",
    "/v1/stream/secret/..//news/a",
    "//v1/stream/news/a",
    "/v1/stream//news/a",
    "/v1/./stream/news/a",
    "/v1/stream/news//secret",
    "/v1/stream/news/%C3%A9",
    "/v1/stream/news/a%3Flive=sse",
    "http://weir.test/v1/stream/secret/a",
)
METHODS = ("HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "PURGED", "TRACED")


@dataclass(frozen=True, slots=True)
class Spied:
    """A cache in front of one who notes what comes."""

    cache: Cache
    behind: ScriptedOrigin

    def token_for(self, method: str, target: str) -> str | None:
        """What is sent along when a stranger asks; None when the cache refuses by itself."""
        before = self.behind.count()
        with Connection(self.cache.port) as connection:
            answer = connection.request(method, target)
        seen = self.behind.requests[before:]
        if not seen:
            assert 400 <= answer.status < 500
            return None
        return seen[0].headers.get("authorization", "")


@pytest.fixture(scope="module", params=[NGINX, VARNISH])
def spied(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Spied]:
    cache = make_cache(request.param, tmp_path_factory.mktemp(request.param), OF_CACHE)
    with ScriptedOrigin() as behind:
        behind.on("*", "/*", Answer(200, {"Cache-Control": "no-store"}, b"seen"))
        with cache.run(behind.port):
            yield Spied(cache, behind)


def test_the_token_of_the_cache_goes_along_with_reads_of_public_streams(spied: Spied) -> None:
    sent = {target: spied.token_for("GET", target) for target in BY_CACHE}
    assert sent == dict.fromkeys(BY_CACHE, f"Bearer {OF_CACHE}")


def test_the_token_of_the_cache_goes_along_with_no_other_path(spied: Spied) -> None:
    sent = {target: spied.token_for("GET", target) for target in NOT_BY_CACHE}
    assert [target for target, token in sent.items() if token] == []


def test_the_token_of_the_cache_goes_along_with_no_other_method(spied: Spied) -> None:
    sent = {
        (method, target): spied.token_for(method, target)
        for method in METHODS
        for target in BY_CACHE
    }
    assert [asked for asked, token in sent.items() if token] == []


@pytest.mark.parametrize("spied", [NGINX], indirect=True)
async def test_who_reads_what_is_not_kept_waits_for_nobody_else(spied: Spied) -> None:
    """All are asked for before any is answered."""
    spied.behind.barrier(CROWD)
    crowd = await connect(spied.cache.port, CROWD)
    for caller in crowd:
        caller.ask("news/tail", "offset=-1", token=None)
    answers = await all_answers(crowd)
    await close_all(crowd)
    spied.behind.release()
    assert {answer.body for answer in answers} == {b"seen"}


# -- purging -------------------------------------------------------------------------------------

by_varnish = pytest.mark.parametrize("site", [VARNISH], indirect=True)


@by_varnish
def test_a_deletion_purges_what_was_kept(site: Site) -> None:
    site.fill("news/gone", b"one.", b"two.")
    with site.client() as stranger, site.client(WRITER) as writer:
        assert stranger.read("news/gone").body == b"one."
        nothing = site.gateway.metric("cdn_purges_found_nothing")
        assert writer("DELETE", "news/gone").status == 204
        site.await_purges()
        assert stranger.read("news/gone").status == 404
        assert site.gateway.metric("cdn_purges_found_nothing") == nothing


@by_varnish
def test_a_purge_from_elsewhere_is_refused(site: Site) -> None:
    site.fill("news/kept", b"one.", b"two.")
    with site.client() as stranger, Connection(site.port, source="127.0.0.2") as elsewhere:
        tag = site.read_anew(stranger, "news/kept")["Surrogate-Key"]
        before = site.requests(mode="catch-up")
        assert elsewhere.request("PURGE", f"/purge/{tag}").status == 403
        assert stranger.read("news/kept").body == b"one."
        assert site.requests(mode="catch-up") == before


@by_varnish
def test_a_purge_that_finds_nothing_says_so(site: Site) -> None:
    with Connection(site.port) as gateway:
        assert gateway.request("PURGE", "/purge/weir-news~2Fnever").status == 404


# -- what the tests need -------------------------------------------------------------------------


def test_every_package_is_announced_before_it_is_fetched() -> None:
    [line] = re.findall(r"^UNPACKED := .*", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    announced = set(re.findall(r"[\w-]+", line))
    assert announced >= {package for packages in PACKAGES.values() for package in packages}
