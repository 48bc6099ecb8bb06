"""Streams by other paths: the same streams, the same rights, the same cache."""

import pytest

from tests.conftest import StartOrigin
from tests.helpers.gateway import KEY, LocalGateway, bearer, make_gateway_config
from tests.helpers.keys import make_token
from tests.helpers.rawhttp import Connection

TEXT = {"Content-Type": "text/plain"}
ALIASES = {"stream_prefixes": ("/v1/streams/",), "root_buckets": True}
# A head that is not plain takes the other way through the server.
WAYS = [{}, {"Connection": "close"}]


@pytest.mark.parametrize("extra", WAYS, ids=["fast", "aiohttp"])
def test_the_origin_knows_streams_by_other_paths(
    start_origin: StartOrigin, extra: dict[str, str]
) -> None:
    origin = start_origin(http=ALIASES)

    def ask(method: str, path: str, body: bytes = b"", **more: str) -> tuple[int, bytes]:
        with Connection(origin.port) as connection:
            reply = connection.request(method, path, TEXT | extra | more, body)
            return reply.status, reply.body

    assert ask("PUT", "/v1/streams/a")[0] == 201
    assert ask("POST", "/v1/streams/a", b"one")[0] == 204
    assert [ask("GET", "/v1/stream/a") for _ in range(3)] == [(200, b"one")] * 3
    assert [ask("GET", "/v1/streams/a?offset=-1") for _ in range(3)] == [(200, b"one")] * 3
    assert ask("PUT", "/demo")[0] == 201
    assert ask("PUT", "/demo/hello", b"two")[0] == 201
    assert ask("GET", "/ds/demo/hello") == (200, b"two") == ask("GET", "/demo/hello")
    fork = {"Stream-Forked-From": "/v1/streams/a"}
    assert ask("PUT", "/v1/streams/b", b"", **fork)[0] == 201
    assert ask("GET", "/v1/stream/b") == (200, b"one")
    assert ask("GET", "/metrics")[0] == 200
    assert ask("GET", "/v1/streams/%2e%2e/x")[0] == 400


@pytest.mark.parametrize("extra", WAYS, ids=["fast", "aiohttp"])
def test_the_gateway_asks_for_the_same_rights_whatever_the_path(
    start_origin: StartOrigin, extra: dict[str, str]
) -> None:
    origin = start_origin()
    config = make_gateway_config(f"http://127.0.0.1:{origin.port}", http=ALIASES)
    with origin.connect() as behind, LocalGateway(config) as gateway:
        for path in ("/v1/stream/a", "/v1/stream/secret", "/ds/demo", "/ds/demo/s"):
            assert behind.request("PUT", path, TEXT, b"data").status == 201

        def ask(method: str, path: str, scope: str, **more: str) -> int:
            headers = TEXT | bearer(make_token(KEY, scope=scope)) | extra | more
            with gateway.connect() as connection:
                return connection.request(method, path, headers, b"").status

        for path in ("/v1/stream/secret", "/v1/streams/secret"):
            assert ask("GET", path, "read:secret") == 200  # stored now, under one key
        assert gateway.metric("upstream_requests", kind="read") <= 2
        assert ask("GET", "/v1/streams/a", "read:a") == 200
        assert ask("GET", "/v1/streams/secret", "read:a read:/v1/streams/*") == 403
        assert ask("GET", "/demo/s", "read:/ds/demo/s") == 200
        assert ask("GET", "/demo/s", "read:demo/s read:/demo/*") == 403
        fork = {"Stream-Forked-From": "/v1/streams/secret"}
        assert ask("PUT", "/v1/streams/f", "create:f read:a", **fork) == 403
        assert ask("PUT", "/v1/streams/f", "create:f read:secret", **fork) == 201
        assert ask("GET", "/healthz", "") == 200
        assert ask("GET", "/console/", "") == 200


def test_neither_knows_them_unless_configured(start_origin: StartOrigin) -> None:
    origin = start_origin()
    config = make_gateway_config(f"http://127.0.0.1:{origin.port}")
    token = bearer(make_token(KEY))
    with origin.connect() as behind, LocalGateway(config) as gateway:
        with gateway.connect() as before:
            for path in ("/v1/streams/a", "/demo", "/demo/s"):
                assert behind.request("PUT", path, TEXT).status == 404
                assert before.request("PUT", path, TEXT | token).status == 404
