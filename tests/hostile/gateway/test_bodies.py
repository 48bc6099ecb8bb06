"""Bodies: nobody's is taken in before it is clear that he may send it, and nobody fills the room
that all share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.gateway import bearer
from tests.helpers.rawhttp import PREFIX, Connection, wait_until
from tests.helpers.scripted_origin import Answer, Gate, SimpleStream
from tests.hostile.gateway.arena import Arena, check_refusal

KIB = 1024
SIZE = 100 * KIB
CALLBACK = "__ds/subscriptions/x/callback"
LIMITS = {
    "max_body_bytes": 128 * KIB,
    "max_snapshot_bytes": 128 * KIB,
    "max_bodies_bytes": 400 * KIB,
    "max_bodies_bytes_per_subject": 200 * KIB,
}


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory, arena_class: type[Arena]) -> Iterator[Arena]:
    """With room for two bodies of a subject, and four in all."""
    with arena_class(tmp_path_factory.mktemp("narrow"), gateway=LIMITS) as arena:
        SimpleStream(arena.origin, PREFIX + "a")
        yield arena
        wait_until(lambda: held(arena) == 0, what="room given back")


def held(arena: Arena) -> int:
    return arena.gateway.gateway.entrance.admissions.body_bytes


def begin(
    arena: Arena,
    token: str | None,
    *,
    name: str = "a",
    method: str = "POST",
    framing: str = f"Content-Length: {SIZE}",
    more: str = "",
) -> Connection:
    """An upload whose body is still to come."""
    connection = arena.connect()
    lines = "".join(f"{key}: {value}\r\n" for key, value in bearer(token).items())
    head = f"{method} {PREFIX}{name} HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\n"
    connection.send(f"{head}{lines}{more}{framing}\r\n\r\n".encode())
    return connection


def finish(connection: Connection, sent: int = 0) -> int:
    with connection:
        connection.send(b"x" * (SIZE - sent))
        return connection.read_response("POST").status


@pytest.mark.parametrize("framing", [f"Content-Length: {SIZE}", "Transfer-Encoding: chunked"])
@pytest.mark.parametrize(
    ("scope", "method", "name", "more"),
    [
        ("read:*", "POST", "a", ""),
        ("write:*", "PUT", "b", ""),
        ("read:* write:*", "PUT", "b", ""),
        ("create:*", "PUT", "b", f"Stream-Forked-From: {PREFIX}secret\r\n"),
        ("read:*", "POST", "__ds/subscriptions/x", ""),
    ],
    ids=["append", "create", "create-too", "fork", "subscription"],
)
def test_no_body_is_waited_for_before_its_scope_is_good(
    narrow: Arena, scope: str, method: str, name: str, more: str, framing: str
) -> None:
    token = narrow.token(sub="limited", scope=scope)
    for _ in range(2):  # the first time the token is new, then it is known
        with begin(narrow, token, name=name, method=method, framing=framing, more=more) as asking:
            check_refusal(asking.read_response(method), 403)


@pytest.mark.parametrize(("scope", "status"), [("read:*", 403), ("write:*", 204)])
def test_who_waits_to_be_told_to_go_on_is_told_so_only_if_he_may(
    narrow: Arena, scope: str, status: int
) -> None:
    token = narrow.token(sub="polite", scope=scope)
    with begin(narrow, token, more="Expect: 100-continue\r\n") as asking:
        if status == 204:
            assert asking.read_head()[0] == 100
            asking.send(b"x" * SIZE)
        assert asking.read_response("POST").status == status


@pytest.mark.parametrize("token", [None, "of-the-origins-making"])
def test_what_anybody_may_send_is_small(narrow: Arena, token: str | None) -> None:
    with begin(narrow, token, name=CALLBACK) as asking:
        check_refusal(asking.read_response("POST"), 413)
    with begin(narrow, token, name=CALLBACK, framing="Transfer-Encoding: chunked") as asking:
        asking.send(b"%x\r\n%b\r\n" % (SIZE, b"x" * SIZE))
        check_refusal(asking.read_response("POST"), 413)
    reply = narrow.ask(CALLBACK, token=token, method="POST", body=b"x" * 1000)
    assert reply.status == 404, "it reaches the origin, which has none"


def test_one_subject_has_a_share_of_the_room_and_all_have_an_end(narrow: Arena) -> None:
    """Counted by what they say they will send, from then on until the origin has answered."""
    tokens = {name: narrow.token(sub=name) for name in ("greedy", "other", "third")}
    open_uploads = []
    for name, status in (("greedy", 429), ("other", 503)):
        for _ in range(2):
            open_uploads.append(begin(narrow, tokens[name]))
            wait_until(lambda: held(narrow) == len(open_uploads) * SIZE)
        with begin(narrow, tokens[name]) as refused:
            reply = refused.read_response("POST")
            check_refusal(reply, status)
            of = "-of-subject" if status == 429 else ""
            assert (reply["Retry-After"], reply.json()["code"]) == ("1", f"too-many-bodies{of}")
        if name == "greedy":
            small = narrow.ask("a", token=tokens["third"], method="POST", body=b"small")
            assert small.status == 204, "others have room"
    assert narrow.ask("a", token=tokens["third"], method="POST", body=b"y" * SIZE).status == 503
    assert [finish(upload) for upload in open_uploads] == [204] * 4
    wait_until(lambda: held(narrow) == 0)
    assert finish(begin(narrow, tokens["third"])) == 204


def test_a_body_without_a_length_is_counted_as_it_comes(narrow: Arena) -> None:
    token = narrow.token(sub="chunky")
    uploads = [begin(narrow, token, framing="Transfer-Encoding: chunked") for _ in range(3)]
    for upload in uploads[:2]:
        upload.send(b"%x\r\n%b\r\n" % (SIZE, b"x" * SIZE))
    wait_until(lambda: held(narrow) == 2 * SIZE)
    uploads[2].send(b"1\r\nx\r\n")
    check_refusal(uploads[2].read_response("POST"), 429)
    for upload in uploads[:2]:
        upload.send(b"0\r\n\r\n")
        assert upload.read_response("POST").status == 204
    for upload in uploads:
        upload.close()


def test_uploads_that_break_off_give_their_room_back(narrow: Arena) -> None:
    token = narrow.token(sub="leaving")
    for framing in (f"Content-Length: {SIZE}", "Transfer-Encoding: chunked"):
        uploads = [begin(narrow, token, framing=framing) for _ in range(2)]
        for upload in uploads:
            upload.send(b"%x\r\n%b\r\n" % (SIZE // 2, b"x" * (SIZE // 2)))
        wait_until(lambda: held(narrow) > 0)
        for upload in uploads:
            upload.close()
        wait_until(lambda: held(narrow) == 0)


def test_a_write_whose_client_has_left_holds_its_room_until_the_origin_has_it(
    narrow: Arena,
) -> None:
    """It is carried through: else who leaves at once could have the gateway hold any number."""
    gate = Gate()
    narrow.origin.on("POST", PREFIX + "slow", Answer(204, wait_for=gate))
    token = narrow.token(sub="hasty")
    uploads = [begin(narrow, token, name="slow") for _ in range(2)]
    for upload in uploads:
        upload.send(b"x" * SIZE)
    wait_until(lambda: gate.waiting == 2)
    for upload in uploads:
        upload.close()
    wait_until(lambda: sum(line.ended == "client-left" for line in narrow.lines()) >= 2)
    assert held(narrow) == 2 * SIZE
    with begin(narrow, token, name="slow") as refused:
        check_refusal(refused.read_response("POST"), 429)
    gate.open()
    wait_until(lambda: held(narrow) == 0)


def test_a_rate_is_counted_before_the_body_and_once(
    tmp_path: Path, arena_class: type[Arena]
) -> None:
    serving = {"requests_per_second": 0.001, "request_burst": 3}
    with arena_class(tmp_path, gateway=serving) as arena:
        SimpleStream(arena.origin, PREFIX + "a")
        token = arena.token(sub="busy")
        assert arena.ask("a", token=token, method="POST", body=b"whole").status == 204
        assert [finish(begin(arena, token)) for _ in range(2)] == [204, 204]
        with begin(arena, token) as refused:
            check_refusal(refused.read_response("POST"), 429)
