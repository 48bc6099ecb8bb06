"""What a client of streams asks, and which answers it refuses."""

from collections.abc import Iterator

import pytest

from loadtest.load.client import Client, RefusedError, WrongAnswerError, fetch_metrics, parse_reads
from loadtest.load.connection import Target
from tests.helpers.origin import LocalOrigin
from tests.helpers.scripted_origin import Answer, ScriptedOrigin

PATH = "/v1/stream/s"
METRICS = """\
# TYPE weir_origin_requests_total counter
weir_origin_requests_total{method="GET",status="200"} 3.0
weir_origin_requests_total{method="GET",status="204"} 2.0
weir_origin_requests_total{method="POST",status="204"} 9.0
"""


def chunk(body: bytes, offset: str, *, last: bool = False) -> Answer:
    headers = {"Stream-Next-Offset": offset} | ({"Stream-Up-To-Date": "true"} if last else {})
    return Answer(200, headers, body)


@pytest.fixture
def server() -> Iterator[ScriptedOrigin]:
    with ScriptedOrigin() as server:
        yield server


def client_of(server: ScriptedOrigin) -> Client:
    return Client(Target.parse(server.url), ["one", "two"])


def test_requests_take_turns_with_the_tokens() -> None:
    client = Client(Target("a", 1), ["one", "two"])
    first = client.request("GET", "a/b", "?offset=-1")
    assert first == (
        b"GET /v1/stream/a/b?offset=-1 HTTP/1.1\r\nHost: a:1\r\nAuthorization: Bearer one\r\n\r\n"
    )
    assert client.request("POST", "a", body=b"xyz").endswith(b"Content-Length: 3\r\n\r\nxyz")
    assert b"Bearer one" in client.request("GET", "a")
    assert b"Bearer" not in Client(Target("a", 1)).request("GET", "a")


async def test_a_reader_follows_to_the_tail(server: ScriptedOrigin) -> None:
    chunks = [chunk(b"abc", "0_3"), chunk(b"de", "0_5", last=True)]
    server.on("GET", PATH, chunks)
    async with client_of(server) as client:
        await client.check_content("s", b"abcde")
        assert [one.target.partition("=")[2] for one in server.requests] == ["-1", "0_3"]
        server.on("GET", PATH, chunks)
        with pytest.raises(WrongAnswerError, match="not the bytes written"):
            await client.check_content("s", b"abcdX")


@pytest.mark.parametrize(
    "answer",
    [chunk(b"", "-1"), Answer(404), Answer(200, {}, b"abc")],
    ids=["stuck", "gone", "no next offset"],
)
async def test_a_reader_refuses_wrong_answers(server: ScriptedOrigin, answer: Answer) -> None:
    server.on("GET", PATH, answer)
    async with client_of(server) as client:
        with pytest.raises(WrongAnswerError):
            async for _ in client.follow("s"):
                pass


async def test_a_writer_wants_success(server: ScriptedOrigin) -> None:
    server.on("POST", PATH, Answer(204))
    async with client_of(server) as client:
        await client.append("s", b"1")
        server.on("POST", PATH, Answer(503))
        with pytest.raises(RefusedError, match="answered with 503"):
            await client.append("s", b"1")


async def test_streams_are_made_filled_and_measured(origin: LocalOrigin) -> None:
    async with Client(Target.local(origin.port)) as client:
        await client.create_all([f"many/{number}" for number in range(100)], b"12345")
        await client.fill("one", [b"abc", b"de"])
        assert await client.tails(["one", "many/0", "many/99"]) == [5, 5, 5]
        before = parse_reads(await fetch_metrics(client.target))
        await client.check_content("one", b"abcde")
        assert parse_reads(await fetch_metrics(client.target)) == before + 2


def test_only_reads_are_counted() -> None:
    assert parse_reads(METRICS) == 5
    assert parse_reads("") == 0
