"""A PUT with a body is an append as well: `Producer-*` and `Stream-Seq` count there as on POST."""

import pytest

from tests.conftest import StartOrigin
from tests.extension.conftest import FLAT, JSON, KEPT_FOR_GOOD, TEXT, Api, Connect, problem
from tests.helpers.rawhttp import Response


def by(producer: str, seq: int = 0, epoch: int = 0) -> dict[str, str]:
    return {"Producer-Id": producer, "Producer-Epoch": str(epoch), "Producer-Seq": str(seq)}


def put(
    api: Api, path: str, more: dict[str, str], body: bytes = b"first", kind: str = TEXT
) -> Response:
    return api("PUT", path, {"Content-Type": kind, **more}, body)


def post(api: Api, path: str, more: dict[str, str], body: bytes = b"+") -> Response:
    return api("POST", path, {"Content-Type": TEXT, **more}, body)


def producer_of(reply: Response) -> tuple[str, str]:
    return reply["Producer-Epoch"], reply["Producer-Seq"]


def test_a_producer_that_creates_goes_on_by_posts(api: Api, path: str) -> None:
    reply = put(api, path, by("p", epoch=3))
    assert (reply.status, producer_of(reply)) == (201, ("3", "0"))
    assert post(api, path, by("p", 0, 3)).status == 204  # it is in already
    assert post(api, path, by("p", 1, 3)).status == 200
    assert post(api, path, by("p", 0, 2)).status == 403
    assert api.read(path).body == b"first+"


def test_a_repeated_put_of_a_producer_is_a_duplicate(api: Api, path: str) -> None:
    put(api, path, by("p") | {"If-None-Match": "*"})
    tail = post(api, path, by("p", 1)).next_offset
    reply = put(api, path, by("p") | {"If-None-Match": "*"})
    assert (reply.status, producer_of(reply), reply.next_offset) == (200, ("0", "1"), tail)
    assert api.read(path).body == b"first+"


def test_a_repeated_put_that_closes_is_a_duplicate(api: Api, path: str) -> None:
    closing = by("p") | {"Stream-Closed": "true"}
    assert put(api, path, closing).status == 201
    reply = put(api, path, closing)
    assert (reply.status, reply.closed) == (200, True)
    assert problem(put(api, path, by("q") | {"Stream-Closed": "true"})) == (409, "closed")
    assert api.read(path).body == b"first"


def test_a_gap_creates_nothing(api: Api, path: str) -> None:
    reply = put(api, path, by("p", 1))
    assert problem(reply) == (409, "sequence-gap")
    assert (reply["Producer-Expected-Seq"], reply["Producer-Received-Seq"]) == ("0", "1")
    assert api.head(path).status == 404


def test_what_is_not_in_the_stream_is_never_said_to_be(api: Api, path: str) -> None:
    """PUT appends nothing to a stream that is there."""
    api.create(path, TEXT, b"theirs")
    for more in (by("p"), {"Stream-Seq": "1"}, by("p") | {"Stream-Seq": "1"}):
        assert problem(put(api, path, more)) == (409, "stream-exists")
    assert post(api, path, by("p")).status == 200
    assert api.read(path).body == b"theirs+"


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        pytest.param(by("p", 7, 2), (409, "sequence-gap"), id="gap"),
        pytest.param(by("p", 1, 2), (409, "stream-exists"), id="next"),
        pytest.param(by("p", 0, 1), (403, "stale-epoch"), id="stale-epoch"),
        pytest.param(by("p", 1, 3), (400, "bad-epoch-start"), id="bad-epoch-start"),
        pytest.param({"Stream-Seq": "5"}, (409, "seq-regression"), id="same-sequence"),
        pytest.param({"Stream-Seq": "6"}, (409, "stream-exists"), id="next-sequence"),
    ],
)
def test_a_stream_that_is_there_judges_a_put_as_a_post(
    api: Api, path: str, more: dict[str, str], expected: tuple[int, str]
) -> None:
    put(api, path, by("p", 0, 2) | {"Stream-Seq": "5"})
    assert problem(put(api, path, more)) == expected
    assert api.read(path).body == b"first"


def test_the_sequence_of_a_put_counts_for_posts(api: Api, path: str) -> None:
    assert put(api, path, {"Stream-Seq": "5"}).status == 201
    assert problem(post(api, path, {"Stream-Seq": "5"})) == (409, "seq-regression")
    assert post(api, path, {"Stream-Seq": "6"}).status == 204


def test_another_configuration_is_told_first(api: Api, path: str) -> None:
    put(api, path, by("p"))
    assert problem(put(api, path, by("p") | {"Stream-TTL": "9"})) == (409, "config-mismatch")


@pytest.mark.parametrize("more", [by("p"), {"Stream-Seq": "1"}], ids=["producer", "sequence"])
@pytest.mark.parametrize("closed", [{}, {"Stream-Closed": "true"}], ids=["open", "closed"])
def test_without_a_body_there_is_nothing_to_count(
    api: Api, path: str, more: dict[str, str], closed: dict[str, str]
) -> None:
    assert problem(put(api, path, more | closed, b"")) == (400, "empty-body")
    assert problem(put(api, path, more | closed, b"[]", JSON)) == (400, "empty-array")
    assert api.head(path).status == 404


@pytest.mark.parametrize(
    "more",
    [{"Producer-Id": "p"}, by("p") | {"Producer-Seq": "x"}, {"Stream-Seq": ""}],
    ids=["partial", "no-number", "no-sequence"],
)
def test_malformed_headers_are_refused_as_on_post(
    api: Api, path: str, more: dict[str, str]
) -> None:
    refused = problem(post(api, path, more))
    assert refused[0] == 400
    assert problem(put(api, path, more)) == refused
    assert api.head(path).status == 404


def test_a_fork_counts_its_own_producers(api: Api, path: str) -> None:
    put(api, path, by("p"))
    fork = {"Stream-Forked-From": path} | by("p")
    assert put(api, f"{path}2", fork, b"!").status == 201
    assert put(api, f"{path}2", fork, b"!").status == 200
    assert api.read(f"{path}2").body == b"first!"


def test_a_fork_at_an_offset_of_another_stream_is_no_duplicate(api: Api, path: str) -> None:
    here = put(api, path, {}).next_offset
    foreign = put(api, f"{path}3", {}).next_offset
    fork = {"Stream-Forked-From": path} | by("p")
    assert put(api, f"{path}2", fork | {"Stream-Fork-Offset": here}, b"!").status == 201
    assert put(api, f"{path}2", fork | {"Stream-Fork-Offset": here}, b"!").status == 200
    refused = put(api, f"{path}2", fork | {"Stream-Fork-Offset": foreign}, b"!")
    assert problem(refused) == (410, "foreign-offset")


@KEPT_FOR_GOOD
def test_it_is_remembered_over_a_restart(
    start_origin: StartOrigin, connect: Connect, mode: str
) -> None:
    origin = start_origin(mode)
    put(connect(origin), FLAT, by("p") | {"Stream-Seq": "5"})
    origin.stop()
    origin.start()
    api = connect(origin)
    assert put(api, FLAT, by("p") | {"Stream-Seq": "5"}).status == 200
    assert problem(post(api, FLAT, {"Stream-Seq": "5"})) == (409, "seq-regression")
    assert post(api, FLAT, by("p", 1) | {"Stream-Seq": "6"}).status == 200
    assert api.read(FLAT).body == b"first+"
