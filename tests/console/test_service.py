"""What is served below /console/, to whom, and what it never does."""

import asyncio
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from gateway.config import AuthConfig, load_config
from gateway.console.figures import Figures, add_up, count_up
from gateway.console.minting import is_local, is_own_page
from gateway.console.service import FRESH_SECS, STREAMS, Console, Lately
from gateway.metrics import BUCKETS, Metrics
from gateway.rules.access import Scopes, scope_name
from protocol.sse import Decoder, data_event
from tests.console.driver import Driver
from tests.helpers.gateway import LocalGateway, bearer, make_gateway_config
from tests.helpers.keys import make_key, make_token, write_jwks
from tests.helpers.rawhttp import Connection, Response, wait_until
from tests.helpers.scripted_origin import Answer, ScriptedOrigin
from tests.helpers.server import launch_gateway, serving
from weir import reference

PAGE = Path(__file__).parents[2] / "gateway/console/page"
FILES = sorted(path.name for path in PAGE.iterdir())
SCRIPTS = [name for name in FILES if name.endswith(".js")]
WISH = b'{"scope": "read:*"}'


def ask(
    gateway: LocalGateway,
    path: str,
    method: str = "GET",
    headers: dict[str, str] | None = None,
    body: bytes = b"",
) -> Response:
    with gateway.connect() as connection:
        return connection.request(method, path, headers or {}, body)


def own_page(gateway: LocalGateway, **other: str) -> dict[str, str]:
    """The headers that the console's own script sends, some of them changed; "" leaves one out."""
    headers = {
        "Host": f"127.0.0.1:{gateway.port}",
        "Origin": gateway.url,
        "Sec-Fetch-Site": "same-origin",
        "Content-Type": "application/json",
        "Weir-Mint": "" if gateway.mint_key is None else gateway.mint_key.secret,
    }
    headers |= {name.replace("_", "-"): value for name, value in other.items()}
    return {name: value for name, value in headers.items() if value}


# -- files -------------------------------------------------------------------------------------


def test_the_page_has_a_strict_policy(gateway: LocalGateway) -> None:
    reply = ask(gateway, "/console/")
    assert (reply.status, reply["Content-Type"]) == (200, "text/html; charset=utf-8")
    policy = dict(part.split(" ", 1) for part in reply["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["base-uri"] == policy["form-action"] == policy["frame-ancestors"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert reply["X-Content-Type-Options"] == "nosniff"
    assert reply["Referrer-Policy"] == "no-referrer"


@pytest.mark.parametrize("name", FILES)
def test_each_file_is_served_with_its_type_and_found_unchanged(
    gateway: LocalGateway, name: str
) -> None:
    reply = ask(gateway, f"/console/{name}")
    assert reply.body == (PAGE / name).read_bytes()
    kinds = {".js": "text/javascript", ".css": "text/css", ".html": "text/html"}
    assert reply["Content-Type"] == f"{kinds[Path(name).suffix]}; charset=utf-8"
    again = ask(gateway, f"/console/{name}", headers={"If-None-Match": reply["ETag"]})
    assert (again.status, again.body) == (304, b"")
    head = ask(gateway, f"/console/{name}", "HEAD")
    assert (head.status, head.body, head["ETag"]) == (200, b"", reply["ETag"])


@pytest.mark.parametrize(
    "path",
    [
        *("nothing", "../console/app.js", "..%2fservice.py", "%2e%2e/service.py", "./app.js"),
        *("app.js/", "/app.js", "..\\service.py", "__init__.py", "app.js%00", "page/app.js"),
    ],
)
def test_nothing_but_the_files_is_there(gateway: LocalGateway, path: str) -> None:
    assert ask(gateway, f"/console/{path}").status in (400, 404)


def test_the_folder_without_its_slash_leads_to_the_page(gateway: LocalGateway) -> None:
    reply = ask(gateway, "/console")
    assert (reply.status, reply["Location"]) == (308, "/console/")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_files_are_only_read(gateway: LocalGateway, method: str) -> None:
    reply = ask(gateway, "/console/app.js", method)
    assert (reply.status, reply["Allow"]) == (405, "GET, HEAD")


def test_it_can_be_switched_off() -> None:
    with ScriptedOrigin() as origin:
        config = make_gateway_config(origin.url, gateway={"console": False})
        with LocalGateway(config) as gateway:
            for path in ("/console/", "/console/setup", "/console/stats", "/console/token"):
                assert ask(gateway, path).status == 404


def test_it_is_off_in_production_and_on_otherwise() -> None:
    keys = {"DS_AUTH__JWKS": "keys.json"}
    assert load_config({}, keys).gateway.console
    assert not load_config({}, keys, profile="prod").gateway.console


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_import_what_is_there_and_parse_no_markup(name: str) -> None:
    text = (PAGE / name).read_text()
    assert {found for found in re.findall(r'from "\./([^"]+)"', text)} <= set(SCRIPTS)
    for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert forbidden not in text
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)


def test_every_script_is_fetched_at_once() -> None:
    text = (PAGE / "index.html").read_text()
    assert sorted([*re.findall(r'modulepreload" href="([^"]+)"', text), "app.js"]) == SCRIPTS


# -- tokens ------------------------------------------------------------------------------------


def test_the_page_on_this_machine_gets_a_token(gateway: LocalGateway) -> None:
    reply = ask(gateway, "/console/token", "POST", own_page(gateway), WISH)
    assert (reply.status, reply["Cache-Control"]) == (200, "no-store")
    token = json.loads(reply.body)["token"]
    assert ask(gateway, "/v1/stream/none", headers=bearer(token)).status == 404
    assert ask(gateway, "/v1/stream/none", "DELETE", bearer(token)).status == 403


@pytest.mark.parametrize(
    "changed",
    [
        {"Host": "evil.example:80", "Origin": "http://evil.example:80"},  # its name points at us
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Content_Type": "text/plain"},  # what a form can send
        {"X_Forwarded_For": "127.0.0.1"},
        {"Forwarded": "for=127.0.0.1"},
        {"Via": "1.1 proxy"},
        {"Weir_Mint": ""},  # another user here, or a proxy that hides itself
        {"Weir_Mint": "secret-of_1-ru"},
        {"Weir_Mint": "secret-of_1-run1"},
        {"Weir_Mint": "\u00e9"},
    ],
    ids=str,
)
def test_nobody_else_gets_one(gateway: LocalGateway, changed: dict[str, str]) -> None:
    reply = ask(gateway, "/console/token", "POST", own_page(gateway, **changed), WISH)
    assert reply.status == 403, reply
    assert b"eyJ" not in reply.body


def test_a_foreign_page_may_not_even_ask(gateway: LocalGateway) -> None:
    """Its JSON would need a preflight, which fails."""
    headers = own_page(gateway, Origin="http://evil.example")
    headers |= {"Access-Control-Request-Method": "POST"}
    assert ask(gateway, "/console/token", "OPTIONS", headers).status == 405


@pytest.mark.parametrize(
    "wish",
    [
        *(b"", b"[]", b'{"scope": 1}', b'{"scope": "", "admin": true}', b"\xff"),
        *(b'{"scope": "", "ttl_secs": 0}', b'{"scope": "", "ttl_secs": 1e9}'),
        *(b'{"scope": "", "sub": "two words"}', b'{"scope": "%s"}' % (b"x" * 20_000)),
    ],
    ids=lambda wish: repr(wish[:40]),
)
def test_a_senseless_wish_is_refused(gateway: LocalGateway, wish: bytes) -> None:
    assert ask(gateway, "/console/token", "POST", own_page(gateway), wish).status == 400


def test_a_wish_in_chunks_is_heard_as_well(gateway: LocalGateway) -> None:
    headers = own_page(gateway, Transfer_Encoding="chunked")
    body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(WISH), WISH)
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with gateway.connect() as connection:
        connection.send(f"POST /console/token HTTP/1.1\r\n{lines}\r\n".encode() + body)
        assert connection.read_response("POST").status == 200


def test_without_the_development_key_no_token_is_signed() -> None:
    with ScriptedOrigin() as origin, LocalGateway(make_gateway_config(origin.url)) as gateway:
        reply = ask(gateway, "/console/token", "POST", own_page(gateway), WISH)
        assert reply.status == 404
        setup = json.loads(ask(gateway, "/console/setup").body)
        assert setup == {
            "auth": "jwt",
            "scope_claim": "scope",
            "mint_max_secs": 0,
            "token_command": "",
        }


@pytest.mark.parametrize(
    ("host", "peer", "local"),
    [
        ("localhost:8080", "127.0.0.1", True),
        ("localhost", "::1", True),
        ("127.0.0.1:8080", "::ffff:127.0.0.1", True),
        ("[::1]:8080", "::1", True),
        ("[::1]", "::1", True),
        ("LOCALHOST:1", "127.0.0.1", True),
        ("localhost:8080", "10.0.0.1", False),
        ("localhost:8080", "", False),
        ("gateway.example:8080", "127.0.0.1", False),
        ("localhost.evil.example", "127.0.0.1", False),
        ("", "127.0.0.1", False),
    ],
)
def test_who_is_at_this_machine(host: str, peer: str, local: bool) -> None:
    assert is_local({"host": host}, peer) is local


def test_a_page_of_another_port_is_another_page() -> None:
    headers = {"host": "localhost:1", "origin": "http://localhost:2"}
    assert not is_own_page(headers | {"content-type": "application/json"})


# -- figures -----------------------------------------------------------------------------------


def test_figures_need_their_scope(gateway: LocalGateway, driver: Driver) -> None:
    assert ask(gateway, "/console/stats").status == 401
    for scope in (
        "read:chat/*",
        "read:/ds/*",
        "read:/v1/stream/*",
        "write:*",
        "read:console/stats",
    ):
        reply = ask(gateway, "/console/stats", headers=bearer(driver.token(scope)))
        assert reply.status == 403
        assert 'scope="read:/console/stats"' in reply["WWW-Authenticate"]
    for scope in ("read:*", "read:/console/stats", "read:/console/*"):
        reply = ask(gateway, "/console/stats", headers=bearer(driver.token(scope)))
        assert (reply.status, reply["Cache-Control"]) == (200, "no-store")


def test_figures_are_what_was_counted(gateway: LocalGateway, driver: Driver) -> None:
    def figures() -> Figures:
        reply = ask(gateway, "/console/stats", headers=bearer(driver.token("read:*")))
        return msgspec.json.decode(reply.body, type=Figures)

    before = figures()
    driver.api.create("counted", "text/plain", b"abc", stream_closed="true")
    for _ in range(3):
        driver.api.read("counted")
    after = figures()
    assert after.workers == 1 and after.upstream_up
    assert sum(after.writes.values()) == sum(before.writes.values()) + 1
    assert sum(after.reads.values()) == sum(before.reads.values()) + 3
    assert after.reads["hit"] == before.reads.get("hit", 0) + 2
    assert sum(after.latency_counts) == sum(before.latency_counts) + 4
    assert len(after.latency_counts) == len(after.latency_bounds_s) + 1


def test_figures_are_those_of_all_workers(tmp_path: Path) -> None:
    key = make_key()
    settings = {
        "DS_AUTH__JWKS": str(write_jwks(tmp_path / "jwks.json", key)),
        "DS_GATEWAY__WORKERS": "2",
    }
    token = make_token(key)
    with ScriptedOrigin() as origin:
        with serving(launch_gateway(tmp_path, origin.url, settings=settings)) as server:
            wait_until(lambda: figures_of(server.port, token).workers == 2)
            with Connection(server.port) as one, Connection(server.port) as other:
                # Whichever workers these connections have come to, both know of the stream.
                origin.on("PUT", "/v1/stream/a", lambda _: Answer(201, {"Stream-Next-Offset": "0"}))
                one.request("PUT", "/v1/stream/a", bearer(token))
                for connection in (one, other):
                    reply = connection.request("GET", "/console/streams", bearer(token))
                    assert json.loads(reply.body) == {"streams": ["a"]}


def figures_of(port: int, token: str) -> Figures:
    with Connection(port) as connection:
        reply = connection.request("GET", "/console/stats", bearer(token))
    return msgspec.json.decode(reply.body, type=Figures)


def worker_metrics(*, upstream_up: bool = True) -> Metrics:
    metrics = Metrics()
    metrics.hits += 7
    metrics.count_request("sse", "hub", 200)
    metrics.count_request("append", "pass", 204)
    metrics.count_request("service", "pass", 200)
    for mode, seconds in (("append", 0.0008), ("append", 70.0), ("sse", 0.1)):
        metrics.observe(mode, seconds)
    metrics.gauge("live_readers", "Readers at hubs.", lambda: 5)
    metrics.gauge("upstream_up", "0 while the circuit breaker is open.", lambda: upstream_up)
    metrics.labelled_counter("upstream_requests", "Requests.", lambda: 1, kind="live")
    return metrics


def test_figures_of_workers_are_added_up() -> None:
    one = count_up(worker_metrics().collect())
    found = add_up([one, one])
    assert (one.workers, found.workers) == (1, 2) and found.upstream_up
    assert found.reads == {"hit": 14, "hub": 2} and found.writes == {"pass": 2}
    assert (found.readers, found.upstream) == (10, {"live": 2})
    assert found.latency_bounds_s == list(BUCKETS)
    assert found.latency_counts == [14, 2, *[0] * (len(BUCKETS) - 2), 2]


def test_one_worker_without_its_origin_is_told() -> None:
    up, down = (count_up(worker_metrics(upstream_up=is_up).collect()) for is_up in (True, False))
    assert not add_up([up, down]).upstream_up


def test_a_worker_without_requests_adds_nothing() -> None:
    idle, busy = count_up(()), count_up(worker_metrics().collect())
    assert idle.latency_counts == []
    assert add_up([idle, busy]).latency_counts == busy.latency_counts


# -- streams that were served ------------------------------------------------------------------


def test_streams_that_were_served_are_named_to_who_may_read_them(
    gateway: LocalGateway, driver: Driver
) -> None:
    def served(scope: str) -> list[str]:
        reply = ask(gateway, "/console/streams", headers=bearer(driver.token(scope)))
        assert reply.status == 200
        names: list[str] = json.loads(reply.body)["streams"]
        return names

    assert ask(gateway, "/console/streams").status == 401
    driver.api.create("served/one")
    driver.api.create("served/two")
    driver.api.read("served/none")
    wait_until(lambda: served("read:*")[:2] == ["served/two", "served/one"])
    assert served("read:served/*") == ["served/two", "served/one"]
    assert served("read:served/one write:*") == ["served/one"]
    assert served("write:*") == []
    driver.api("DELETE", "served/one")
    wait_until(lambda: served("read:served/*") == ["served/two"])


class Workers:
    """What they know of, and how often they were asked."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.asked = 0

    async def __call__(self) -> tuple[str, ...]:
        self.asked += 1
        await asyncio.sleep(0)
        return self.names


async def all_figures() -> list[Figures]:
    raise AssertionError("nobody asked for these")


@pytest.mark.parametrize("scope", ["", "write:*", "read:", "read:%FF create:a"])
def test_who_may_read_nothing_makes_nobody_work(scope: str) -> None:
    workers = Workers("a")
    console = Console(AuthConfig(), all_figures, workers, None)
    reply = asyncio.run(console.tell(STREAMS, Scopes.parse(scope)))
    assert json.loads(reply.body) == {"streams": []}
    assert workers.asked == 0


def test_workers_are_asked_for_streams_once_a_second_however_many_ask() -> None:
    workers, now = Workers("b", "a", "b"), 0.0
    lately = Lately(workers, lambda: now)

    async def ask_often() -> list[tuple[str, ...]]:
        return await asyncio.gather(*(lately.names() for _ in range(100)))

    async def check() -> None:
        nonlocal now
        assert await ask_often() == [("b", "a")] * 100
        workers.names = ("c",)
        now = FRESH_SECS * 0.99
        assert await lately.names() == ("b", "a") and workers.asked == 1
        now = FRESH_SECS
        assert await ask_often() == [("c",)] * 100
        assert workers.asked == 2

    asyncio.run(check())


# -- what the page reckons by itself -----------------------------------------------------------

SCOPES = [
    *("read:orders", "read:chat/*", "read:chat*", "read:/v1/stream/chat/*", "read:/v1/stream/*"),
    *("read:/ds/bucket/x", "read:/ds/bucket/*", "read:/ds/bucket/s*", "read:/ds/bucket"),
    *("read:/ds/*", "read:*", "read:/*", "read:/v1/*", "read:a%2A", "read:two%20words", "read:%zz"),
    *("read:a*b", "read:", "write:*", "READ:*", "read", "read:/ds/bucket/streams", "read:%FF*"),
    *("read:/v1/stream//ds/x", "read:/console/stats", "admin:*", "read:orders read:chat/1"),
]
NAMES = [
    *("orders", "orders/1", "chat", "chat/1", "chatter", "/ds/bucket", "/ds/bucket/x", "a*", "a"),
    *("/ds/bucket/streams", "/ds/bucket2/x", "two words", "é", "%zz", "/console/stats", "/ds/x"),
]


def test_the_page_reads_scopes_as_the_gateway_does(console: Driver) -> None:
    ours = [
        [
            [Scopes.parse(scope).allows("read", name) for name in NAMES],
            Scopes.parse(scope).allows_listing("/ds/bucket"),
        ]
        for scope in SCOPES
    ]
    theirs = console.page.evaluate(
        f"""import('/console/scopes.js').then(({{ Scopes }}) => {json.dumps(SCOPES)}.map((text) => [
            {json.dumps(NAMES)}.map((name) => new Scopes(text).allows('read', name)),
            new Scopes(text).allowsListing('/ds/bucket'),
        ]))"""
    )
    assert theirs == ours
    named = console.page.evaluate(
        f"""import('/console/scopes.js').then(({{ scopeName }}) =>
            {json.dumps(NAMES)}.map((name) => scopeName('read', name)))"""
    )
    assert named == [scope_name("read", name) for name in NAMES]


def test_the_page_asks_for_no_name_that_browsers_would_change(console: Driver) -> None:
    names = ["..", ".", "a/../b", "/ds/../console/token", "/ds/agents/..", "./a", "a/."]
    fine = ["...", "a/..b", ".a", "a./b", "%2e%2e", "a b/é"]
    refused = console.page.evaluate(
        f"""import('/console/names.js').then(({{ pathOf }}) => {json.dumps(names + fine)}.filter(
            (name) => {{ try {{ pathOf(name); }} catch {{ return true; }} }}))"""
    )
    assert refused == names
    kept = console.page.evaluate(
        f"""import('/console/names.js').then(({{ pathOf }}) => {json.dumps(fine)}.every(
            (name) => new URL(pathOf(name), location.origin).pathname === pathOf(name)))"""
    )
    assert kept is True


def test_the_page_cuts_arrays_into_their_elements(console: Driver) -> None:
    values = [
        1,
        'a,]}[{"\\',
        {"b": [1, {"c": "},"}], "": []},
        [],
        {},
        [[[]]],
        None,
        -1.5e-7,
        "é\u2028",
    ]
    for text in (json.dumps(values), json.dumps(values, indent=2), "[]", "[ ]", "[[1,2],[3]]"):
        cut = console.page.evaluate(
            f"import('/console/json.js').then((m) => m.splitArray({json.dumps(text)}))"
        )
        assert [json.loads(piece) for piece in cut] == json.loads(text)


@pytest.fixture(scope="module")
def events() -> bytes:
    texts = (b"plain", b" two\nlines", b"\r\nends\r", "é\u2028\u20ac".encode(), b"data: forged\n\n")
    return b":\n\n" + b"".join(map(data_event, texts)) + b"event: end\ndata: x\r\n\r\nretry: 1\r\r"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_the_page_reads_event_streams_however_they_are_cut(
    console: Driver, events: bytes, size: int
) -> None:
    expected = [[event.kind, event.data] for event in Decoder().feed(events)]
    assert len(expected) == 6
    pieces = [list(events[at : at + size]) for at in range(0, len(events), size)]
    found = console.page.evaluate(
        f"""import('/console/events.js').then(async ({{ readEvents }}) => {{
            const found = [];
            const pieces = {json.dumps(pieces)}.map((piece) => Uint8Array.from(piece));
            for await (const {{ kind, data }} of readEvents(pieces)) found.push([kind, data]);
            return found;
        }})"""
    )
    assert found == expected


def test_words_are_for_codes_that_there_are(console: Driver) -> None:
    codes = console.page.evaluate(
        "import('/console/words.js').then(({ BY_CODE }) => Object.keys(BY_CODE))"
    )
    known = reference.codes()
    assert [code for code in codes if f"| `{code}` |" not in known] == []


def test_the_state_stays_in_order_whatever_comes_and_goes(console: Driver) -> None:
    """Looked at now and then, it has what a map has, sorted: 2 before 10."""
    dice = Random(1)
    history: list[dict[str, Any] | None] = []  # None: a look
    for n in range(2000):
        change = {
            "type": dice.choice("ab"),
            "key": f"{dice.choice(('', 'x', '0'))}{dice.choice(range(30))}",
        }
        operation = dice.choice(("insert", "update", "upsert", "delete"))
        history.append(change | {"value": n, "headers": {"operation": operation}})
        if dice.random() < 0.01:
            history.append({"headers": {"control": "reset"}})
        if dice.random() < 0.2:
            history.append(None)
    looks = console.page.evaluate(
        f"""import('/console/state.js').then(({{ State }}) => {{
            const state = new State();
            const looks = [];
            for (const message of {json.dumps(history)})
                if (message) state.apply(JSON.stringify(message));
                else looks.push(state.rows.map(({{ type, key, value }}) => [type, key, value]));
            return looks;
        }})"""
    )
    assert looks == list(expected_looks(history))


def expected_looks(history: Iterable[dict[str, Any] | None]) -> Iterator[list[list[Any]]]:
    rows: dict[tuple[str, str], int] = {}
    for message in history:
        if message is None:
            ordered = sorted(
                rows, key=lambda row: (row[0], "x" in row[1], int(row[1].strip("x")), row[1])
            )
            yield [[*row, rows[row]] for row in ordered]
        elif "control" in message["headers"]:
            rows.clear()
        elif message["headers"]["operation"] == "delete":
            rows.pop((message["type"], message["key"]), None)
        else:
            rows[message["type"], message["key"]] = message["value"]


def test_the_collapse_factor_counts_each_read_once(console: Driver) -> None:
    """A long-poll that a hub answered is a read and a delivery; refusals are no reads."""
    figures = {
        "reads": {"hub": 90, "hit": 8, "miss": 2, "refused": 7, "error": 1},
        "writes": {"pass": 50},
        "upstream": {"live": 3, "read": 2, "write": 50, "head": 9},
        "deliveries": 90,
    }
    factor = console.page.evaluate(
        f"""import('/console/figures.js').then(({{ collapseFactor }}) => [
            collapseFactor({json.dumps(figures)}),
            collapseFactor({{ reads: {{}}, upstream: {{}} }}),
        ])"""
    )
    assert factor == [20, None]


def test_latency_is_read_from_buckets(console: Driver) -> None:
    found = console.page.evaluate(
        """import('/console/figures.js').then(({ quantile }) => [
            quantile([0, 0, 0], [1, 2], 0.5),
            quantile([10, 0, 0], [1, 2], 0.5),
            quantile([5, 5, 0], [1, 2], 0.9),
            quantile([0, 0, 4], [1, 2], 0.5),
        ])"""
    )
    assert found == [None, 0.5, pytest.approx(1.8), 2]
