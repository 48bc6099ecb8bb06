import asyncio
import gzip
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from pytest_aiohttp.plugin import AiohttpRawServer

from gateway.config import AuthConfig
from gateway.jwks import (
    MAX_BYTES,
    MAX_KEYS,
    FileSource,
    Keys,
    KeysError,
    KeysUnavailable,
    UrlSource,
    parse_jwks,
    source_of,
)
from tests.helpers.keys import Key, ScriptedSource, jwks, make_key, write_jwks
from wire.settings import SettingsError

KEY = make_key()
NEXT = make_key("EdDSA", "k2")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def running(keys: Keys) -> AsyncIterator[Keys]:
    try:
        await keys.start()
        yield keys
    finally:
        await keys.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def parse(*entries: object) -> list[str]:
    """Ids of the keys that are taken."""
    return [key.key_id for key in parse_jwks(json.dumps({"keys": entries}).encode()).keys]


@pytest.mark.parametrize("kind", ["RS256", "ES256", "EdDSA"])
def test_a_key_is_bound_to_the_algorithm_of_its_kind(kind: str) -> None:
    entry = make_key(kind).jwk()
    del entry["alg"]
    key = parse_jwks(json.dumps({"keys": [entry]}).encode()).by_id["k1"]
    assert key.algorithm == kind


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"use": "enc"}, id="for-encryption"),
        pytest.param({"use": 1}, id="use-is-no-word"),
        pytest.param({"key_ops": ["sign"]}, id="for-signing"),
        pytest.param({"key_ops": "verify"}, id="key-ops-is-no-list"),
        pytest.param({"alg": "RS256"}, id="another-algorithm"),
        pytest.param({"alg": "none"}, id="no-algorithm"),
        pytest.param({"alg": "HS256"}, id="shared-secret-algorithm"),
        pytest.param({"kty": "oct", "k": "c2VjcmV0"}, id="shared-secret"),
        pytest.param({"kty": "XYZ"}, id="unknown-kind"),
        pytest.param({"kty": ["OKP"]}, id="kind-is-no-word"),
        pytest.param({"kty": None}, id="no-kind"),
        pytest.param({"crv": "Ed448"}, id="another-curve"),
        pytest.param({"d": "AAAA"}, id="private-member"),
        pytest.param({"x": "AAAA"}, id="short-key"),
        pytest.param({"x": 7}, id="key-is-no-text"),
        pytest.param({"x": None}, id="no-key"),
        pytest.param({"kid": 7}, id="id-is-no-text"),
        pytest.param({"kid": "k" * 257}, id="endless-id"),
        pytest.param({"kid": "k\ud800"}, id="half-a-character"),
    ],
)
def test_a_key_that_we_must_not_use_is_left_out(
    change: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    assert parse(KEY.jwk() | change, NEXT.jwk()) == ["k2"]
    assert "ignoring key 0 of the JWKS" in caplog.text
    assert KEY.jwk()["x"] not in caplog.text


@pytest.mark.parametrize("kind", ["RS256", "ES256", "EdDSA"])
def test_a_private_key_is_left_out(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    assert parse(make_key(kind).private_jwk()) == []
    assert "private key" in caplog.text


@pytest.mark.parametrize("curve", ["P-384", "secp256k1", "P-521"])
def test_only_p256_is_taken(curve: str) -> None:
    assert parse(make_key("ES256").jwk() | {"crv": curve}) == []


def test_a_point_off_the_curve_is_left_out() -> None:
    entry = make_key("ES256").jwk()
    assert parse(entry | {"x": entry["y"], "y": entry["x"]}) == []


@pytest.mark.parametrize("bits", [1024, 2047])
def test_short_rsa_keys_are_left_out(bits: int, caplog: pytest.LogCaptureFixture) -> None:
    assert parse(make_key("RS256", rsa_bits=bits).jwk()) == []
    assert f"{bits} bits" in caplog.text


def test_of_two_keys_with_one_id_the_first_counts() -> None:
    twin = make_key("ES256", "k1")
    assert [key.algorithm for key in parse_jwks(json.dumps(jwks(KEY, twin)).encode()).keys] == [
        "EdDSA"
    ]


def test_keys_without_id_serve_tokens_without_id() -> None:
    entries = [make_key(kind).jwk() for kind in ("EdDSA", "ES256")]
    for entry in entries:
        del entry["kid"]
    found = parse_jwks(json.dumps({"keys": entries}).encode())
    assert len(found.keys) == 2 and not found.by_id
    assert found.find(None, "ES256") is found.keys[1]
    assert found.find("", "ES256") is None


def test_two_keys_of_one_kind_need_an_id() -> None:
    found = parse_jwks(json.dumps(jwks(KEY, NEXT)).encode())
    assert found.find(None, "EdDSA") is None
    assert found.find("k2", "EdDSA") is found.keys[1]


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{}", b'{"keys":{}}', b'{"keys":[],"keys":[]}', b"<html>", b"\xff"]
    + [json.dumps({"keys": [{}] * (MAX_KEYS + 1)}).encode()],
)
def test_what_is_no_key_set_is_an_error(data: bytes) -> None:
    with pytest.raises(KeysError):
        parse_jwks(data)


@pytest.mark.parametrize("entry", [None, 7, "key", [], {}])
def test_an_entry_that_is_no_key_is_left_out(entry: object) -> None:
    assert parse(entry, KEY.jwk()) == ["k1"]


async def test_all_who_miss_a_key_share_one_fetch() -> None:
    source, clock = ScriptedSource(KEY), Clock()
    async with running(Keys(source, clock)) as keys:
        clock.now = 31
        source.open.clear()
        source.publish(KEY, NEXT)
        asked = [asyncio.create_task(keys.find("k2", "EdDSA")) for _ in range(50)]
        await until(lambda: source.reads == 2)
        asked[0].cancel()
        source.open.set()
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(found[0], asyncio.CancelledError)
        assert {key.key_id for key in found[1:] if not isinstance(key, BaseException) and key} == {
            "k2"
        }
        assert source.reads == 2 and keys.generation == 2


async def test_a_failed_attempt_starts_the_cooldown_too() -> None:
    source, clock = ScriptedSource(KEY), Clock()
    async with running(Keys(source, clock)) as keys:
        source.error, clock.now = KeysError("is away"), 31
        assert await keys.find("k2", "EdDSA") is None
        clock.now = 60
        assert await keys.find("k2", "EdDSA") is None
        assert (source.reads, keys.failures) == (2, 1)
        clock.now = 61
        assert await keys.find("k3", "EdDSA") is None
        assert source.reads == 3


async def test_a_known_key_never_asks() -> None:
    source, clock = ScriptedSource(KEY), Clock()
    async with running(Keys(source, clock)) as keys:
        clock.now = 1e6
        assert await keys.find("k1", "RS256") is keys.current.keys[0]
        assert source.reads == 1


@pytest.mark.parametrize("error", [KeysError("is away"), RuntimeError("a bug")], ids=repr)
async def test_the_last_good_keys_stay_while_the_source_is_away(error: Exception) -> None:
    source, clock = ScriptedSource(KEY), Clock()
    async with running(Keys(source, clock)) as keys:
        source.error, clock.now = error, 50
        await keys.refresh()
        assert await keys.find("k1", "EdDSA") is not None
        assert (keys.failed_in_a_row, keys.generation) == (1, 1)
        source.error = None
        await keys.refresh()
        assert (keys.failed_in_a_row, keys.failures) == (0, 1)


async def test_a_document_that_is_no_key_set_changes_nothing() -> None:
    source = ScriptedSource(KEY)
    async with running(Keys(source, Clock())) as keys:
        source.document = b'{"keys": ['
        await keys.refresh()
        await keys.refresh()
        assert (keys.generation, keys.failures) == (1, 2)
        assert await keys.find("k1", "EdDSA") is not None


async def test_an_empty_key_set_is_believed() -> None:
    source = ScriptedSource(KEY)
    async with running(Keys(source, Clock())) as keys:
        source.publish()
        await keys.refresh()
        assert keys.ready and keys.generation == 2
        assert await keys.find("k1", "EdDSA") is None


async def test_generation_counts_changes_of_keys_only() -> None:
    source = ScriptedSource(KEY, NEXT)
    async with running(Keys(source, Clock())) as keys:
        source.publish(NEXT, KEY)
        await keys.refresh()
        assert keys.generation == 1
        source.publish(KEY)
        await keys.refresh()
        assert keys.generation == 2


async def test_what_is_left_out_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    source = ScriptedSource(KEY, make_key("EdDSA", "k1"))
    async with running(Keys(source, Clock())) as keys:
        await keys.refresh()
        assert source.reads == 2
    assert caplog.text.count("ignoring key") == 1


async def test_the_timer_tries_again_after_a_failed_start() -> None:
    source = ScriptedSource(KEY)
    source.refresh_s, source.error = 0.01, KeysError("is away")
    async with running(Keys(source)) as keys:
        assert not keys.ready
        with pytest.raises(KeysUnavailable):
            await keys.find("k1", "EdDSA")
        source.error = None
        await until(lambda: keys.ready)
        assert await keys.find("k1", "EdDSA") is not None


def test_the_source_follows_from_the_setting() -> None:
    file, url = (
        source_of(AuthConfig(jwks="keys.json")),
        source_of(AuthConfig(jwks="HTTPS://i/jwks")),
    )
    assert isinstance(file, FileSource) and isinstance(url, UrlSource)
    assert (url.refresh_s, url.cooldown_s) == (300, 30)
    assert file.refresh_s < 10 and file.cooldown_s < 10


async def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = write_jwks(tmp_path / "jwks.json", KEY)
    async with running(Keys(FileSource(str(path), 0.01, 30))) as keys:
        write_jwks(path, NEXT)
        await until(lambda: keys.generation == 2)
        assert list(keys.current.by_id) == ["k2"]
        path.unlink()
        await until(lambda: keys.failures > 0)
        assert list(keys.current.by_id) == ["k2"]


async def test_an_unknown_key_makes_the_file_be_read(tmp_path: Path) -> None:
    path, clock = write_jwks(tmp_path / "jwks.json", KEY), Clock()
    async with running(Keys(FileSource(str(path), 300, 30), clock)) as keys:
        write_jwks(path, KEY, NEXT)
        clock.now = 1.0
        assert await keys.find("k2", "EdDSA") is not None


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read (No such file or directory)"),
        (b"{", "is not a JSON object"),
        (b'{"keys":[]}', "contains no usable key"),
        (b" " * (MAX_BYTES + 1), "is larger than"),
    ],
    ids=["missing", "broken", "empty", "huge"],
)
async def test_a_bad_file_stops_the_start_in_one_line(
    tmp_path: Path, content: bytes | None, problem: str
) -> None:
    path = tmp_path / "jwks.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingsError, match="^auth.jwks .*jwks.json: ") as caught:
        await Keys(FileSource(str(path), 300, 30)).start()
    assert problem in str(caught.value) and "\n" not in str(caught.value)


Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Issuer:
    """A real HTTP server that publishes keys."""

    def __init__(self) -> None:
        self.url = ""
        self.requests = 0
        self.answer: Handler = self.publish(KEY)

    def publish(self, *keys: Key) -> Handler:
        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            return web.json_response(jwks(*keys))

        return answer

    def say(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            return web.Response(status=status, body=body, headers=headers)

        self.answer = answer

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests += 1
        return await self.answer(request)


@pytest.fixture
async def issuer(aiohttp_raw_server: AiohttpRawServer) -> Issuer:
    issuer = Issuer()
    server = await aiohttp_raw_server(issuer.handle, shutdown_timeout=0.1)
    issuer.url = f"http://user:secret@127.0.0.1:{server.port}/jwks?key=hidden"
    return issuer


async def test_keys_come_from_a_url_and_follow_its_changes(issuer: Issuer) -> None:
    async with running(Keys(UrlSource(issuer.url, 0.01, 30))) as keys:
        assert await keys.find("k1", "EdDSA") is not None
        issuer.answer = issuer.publish(KEY, NEXT)
        await until(lambda: keys.generation == 2)
        assert await keys.find("k2", "EdDSA") is not None


async def stall(request: web.BaseRequest) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def trickle(request: web.BaseRequest) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" ")
        await asyncio.sleep(0.01)


async def test_a_bad_answer_of_the_url_is_a_failure(issuer: Issuer) -> None:
    source = UrlSource(issuer.url, 300, 30)
    for status in (204, 301, 304, 404, 500):
        issuer.say(status, b"", {"Location": "http://127.0.0.1:9/"})
        with pytest.raises(KeysError, match=f"answered {status}"):
            await source.read()
    assert issuer.requests == 5


async def test_an_endless_answer_is_cut_off(issuer: Issuer) -> None:
    issuer.say(200, b" " * (MAX_BYTES + 1))
    with pytest.raises(KeysError, match="larger"):
        await UrlSource(issuer.url, 300, 30).read()


async def test_nothing_is_decompressed(issuer: Issuer) -> None:
    packed = gzip.compress(b" " * (100 * MAX_BYTES))
    issuer.say(200, packed, {"Content-Encoding": "gzip"})
    assert await UrlSource(issuer.url, 300, 30).read() == packed


@pytest.mark.parametrize("answer", [stall, trickle])
async def test_a_slow_answer_is_given_up(
    issuer: Issuer, answer: Handler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.jwks.FETCH_TIMEOUT_SECS", 0.1)
    issuer.answer = answer
    with pytest.raises(KeysError, match="did not respond"):
        await UrlSource(issuer.url, 300, 30).read()


async def test_an_endpoint_that_is_gone_keeps_its_secrets(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    source = UrlSource("http://user:secret@127.0.0.1:9/jwks?key=hidden", 300, 30)
    async with running(Keys(source)) as keys:
        assert not keys.ready and keys.failures == 1
    assert "127.0.0.1:9/jwks cannot be fetched" in caplog.text
    assert "secret" not in caplog.text and "hidden" not in caplog.text
