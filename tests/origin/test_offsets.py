"""Offsets name their stream: one of another stream is refused, never answered with foreign bytes.

A fork knows the offsets of those it comes from, as far as it has their bytes.
"""

from itertools import pairwise

import pytest

from tests.conftest import StartOrigin
from tests.helpers.offsets import unnamed
from tests.helpers.origin import MODES, PERSISTENT_MODES
from tests.helpers.rawhttp import Client, EventStream, Response, control

OLD, NEW = b"old bytes", b"new bytes"


def remade(client: Client) -> str:
    """A stream under the name of a deleted one; an offset of the deleted one."""
    offset = client.create("s", body=OLD)
    assert client("DELETE", "s").status == 204
    client.create("s", body=NEW)
    return offset


def is_foreign(reply: Response) -> bool:
    return reply.status == 410 and reply.json()["code"] == "foreign-offset"


def fork(client: Client, name: str, source: str, offset: str) -> Response:
    headers = {"Stream-Forked-From": f"/v1/stream/{source}", "Stream-Fork-Offset": offset}
    return client("PUT", name, headers)


@pytest.mark.parametrize("mode", MODES)
def test_an_offset_names_its_stream_and_is_no_number(start_origin: StartOrigin, mode: str) -> None:
    with start_origin(mode).client() as client:
        first, second = client.create("a", body=b"12"), client.create("b", body=b"12")
        later = client.append("a", b"345")
    assert first[:16] != second[:16]
    assert first[16:] == second[16:] == "_0000000000000002"
    assert later == first[:16] + "_0000000000000005"
    assert not any(character.isdigit() for character in first[:16])
    # The official Yjs server adds one to what has two parts and a number as the second.
    assert len(first.split("_")) != 2


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("live", ["", "&live=long-poll", "&live=sse", "&max_bytes=4"])
def test_an_offset_of_a_deleted_stream_reads_nothing_of_the_one_made_anew(
    start_origin: StartOrigin, mode: str, live: str
) -> None:
    with start_origin(mode).client() as client:
        offset = remade(client)
        for _ in range(2):  # the second time from what was remembered
            reply = client("GET", "s", query=f"offset={offset}{live}")
            assert is_foreign(reply)
        assert reply["ETag"] == client("HEAD", "s")["ETag"]  # of the one that is there
        assert "Stream-Next-Offset" not in reply and "Stream-Earliest-Offset" not in reply


@pytest.mark.parametrize("mode", MODES)
def test_one_that_does_not_name_its_stream_is_read_from_as_ever(
    start_origin: StartOrigin, mode: str
) -> None:
    """The control of the test above, and the promise for offsets of before."""
    with start_origin(mode).client() as client:
        offset = remade(client)
        client.append("s", b"more")
        reply = client.read("s", unnamed(offset))
        assert (reply.status, reply.body) == (200, b"more")
        assert reply.next_offset == client("HEAD", "s").next_offset


@pytest.mark.parametrize("mode", PERSISTENT_MODES)
def test_offsets_hold_across_a_restart(start_origin: StartOrigin, mode: str) -> None:
    origin = start_origin(mode)
    with origin.client() as client:
        foreign, own = remade(client), client("HEAD", "s").next_offset
    origin.restart()
    with origin.client() as client:
        assert client.append("s", b"more")[:16] == own[:16]
        assert client.read("s", own).body == client.read("s", unnamed(own)).body == b"more"
        assert is_foreign(client.read("s", foreign))


def test_an_event_stream_tells_offsets_that_name_the_stream(start_origin: StartOrigin) -> None:
    origin = start_origin()
    with origin.client() as client:
        tail = client.create("s", body=b"x")
        with EventStream(origin.port, "s", unnamed(tail)) as events:
            assert control(events.next_write()[-1])["streamNextOffset"] == tail


def test_a_fork_takes_offsets_of_its_source_up_to_the_fork_point(
    start_origin: StartOrigin,
) -> None:
    with start_origin().client() as client:
        one = client.create("source", body=b"1")
        two, three = client.append("source", b"2"), client.append("source", b"3")
        forked = fork(client, "fork", "source", two).next_offset
        assert forked[:16] != two[:16] and forked[16:] == two[16:]
        assert client.read("fork", one).body == b"2"
        assert client.read("fork", two).body == b""
        assert is_foreign(client.read("fork", three))
        assert is_foreign(client.read("source", forked))  # it knows nothing of its forks


def test_a_fork_of_a_fork_takes_offsets_of_both_as_far_as_it_has_their_bytes(
    start_origin: StartOrigin,
) -> None:
    with start_origin().client() as client:
        first = [client.create("a", body=b"1"), client.append("a", b"2"), client.append("a", b"3")]
        fork(client, "b", "a", first[1])
        own = client.append("b", b"x")
        assert fork(client, "c", "b", own).status == 201
        assert [client.read("c", offset).status for offset in (*first[:2], own)] == [200] * 3
        assert is_foreign(client.read("c", first[2]))
        # A fork below the fork point of its source, named by its grandparent's offset.
        assert fork(client, "d", "b", first[0]).status == 201
        assert client.read("d", first[0]).body == b""
        assert is_foreign(client.read("d", first[1]))


def test_a_fork_still_takes_them_when_its_source_is_deleted(start_origin: StartOrigin) -> None:
    origin = start_origin("file-durable")
    with origin.client() as client:
        one = client.create("source", body=b"1")
        client.append("source", b"2")
        fork(client, "fork", "source", one)
        client.append("fork", b"own")
        client("DELETE", "source")
        assert client.read("fork", one).body == b"own"
    origin.restart()
    with origin.client() as client:
        assert client.read("fork", one).body == b"own"


def test_a_fork_at_an_offset_of_another_stream_is_refused(start_origin: StartOrigin) -> None:
    with start_origin().client() as client:
        offset = remade(client)
        assert is_foreign(fork(client, "fork", "s", offset))
        client("DELETE", "s")
        assert client("HEAD", "s").status == 404  # nothing holds it


def test_a_fork_is_the_same_however_its_offset_is_written(start_origin: StartOrigin) -> None:
    with start_origin().client() as client:
        foreign = client.create("other", body=b"1")
        one = client.create("source", body=b"1")
        assert fork(client, "fork", "source", one).status == 201
        assert fork(client, "fork", "source", unnamed(one)).status == 200
        assert is_foreign(fork(client, "fork", "source", foreign))


def test_snapshots_are_at_offsets_that_name_the_stream(start_origin: StartOrigin) -> None:
    with start_origin().client() as client:
        foreign = remade(client)
        tail = client("HEAD", "s").next_offset
        assert is_foreign(client("PUT", f"s/snapshot/{foreign}", body=b"made of the old one"))
        assert client("GET", "s/snapshot").status == 404
        published = client("PUT", f"s/snapshot/{unnamed(tail)}", body=b"all")
        assert published["Stream-Snapshot-Offset"] == tail
        latest = client("GET", "s/snapshot")
        assert latest["Location"].endswith(f"/v1/stream/s/snapshot/{tail}")
        assert client("HEAD", "s")["Stream-Earliest-Offset"] == tail
        assert client("GET", "s/bootstrap")["Stream-Snapshot-Offset"] == tail
        assert client("GET", f"s/snapshot/{unnamed(tail)}").body == b"all"
        assert is_foreign(client("GET", f"s/snapshot/{foreign}"))
        assert is_foreign(client("DELETE", f"s/snapshot/{foreign}"))
        assert client.read("s")["Stream-Earliest-Offset"] == tail


@pytest.mark.parametrize(
    "offset",
    [
        "bbbbbbbbbbbbbbbb_0000000000000000",  # sixteen letters
        "zbbbbbbbbbbbbbb__0000000000000000",  # a number beyond any stream's
        "aaaaaaaaaaaaaaa__0000000000000000",
        "Bbbbbbbbbbbbbbb__0000000000000000",
        "bbbbbbbbbbbbbbb__000000000000000x",
        "bbbbbbbbbbbbbbb__00000000000000000",
    ],
)
def test_what_no_server_of_ours_handed_out_is_malformed(
    start_origin: StartOrigin, offset: str
) -> None:
    with start_origin().client() as client:
        client.create("s", body=b"x")
        reply = client.read("s", offset)
        assert (reply.status, reply.json()["code"]) == (400, "invalid-offset")


# -- inside an append ------------------------------------------------------------------------------


def code_of(reply: Response) -> tuple[int, str]:
    return reply.status, reply.json()["code"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["text/plain", "application/octet-stream"])
def test_nothing_is_read_from_inside_an_append(
    start_origin: StartOrigin, mode: str, kind: str
) -> None:
    """Neither the rest of it, which would be a loss that nobody notices, nor the next one."""
    with start_origin(mode, storage={"chunk_bytes": 16}).client() as client:
        ends = [client.create("s", kind)]
        ends += [client.append("s", b"%04d" % number, kind) for number in range(12)]
        for live in ("", "&live=long-poll", "&live=sse", "&max_bytes=4"):
            for start, end in pairwise(ends[:-1]):
                for step in (1, 3):
                    within = start[:17] + f"{int(start[17:]) + step:016}"
                    reply = client("GET", "s", query=f"offset={within}{live}")
                    assert code_of(reply) == (400, "invalid-offset")
                assert client.read("s", end).status == 200
        assert code_of(fork(client, "f", "s", within)) == (400, "invalid-offset")
        assert code_of(client("PUT", f"s/snapshot/{within}")) == (400, "invalid-offset")


def test_a_fork_within_an_append_ends_and_goes_on_there(start_origin: StartOrigin) -> None:
    with start_origin().client() as client:
        start, _ = client.create("s"), client.append("s", b"abcd")
        headers = {"Stream-Forked-From": "/v1/stream/s", "Stream-Fork-Offset": start}
        cut = client("PUT", "f", headers | {"Stream-Fork-Sub-Offset": "2"}).next_offset
        client.append("f", b"xy")
        assert client.read("f", cut).body == b"xy"
        assert client.read("f", start).body == b"abxy"
        assert code_of(client.read("f", cut[:-1] + "1")) == (400, "invalid-offset")


@pytest.mark.parametrize("mode", MODES)
def test_text_is_read_from_where_an_append_cut_a_character(
    start_origin: StartOrigin, mode: str
) -> None:
    """An event stream tells this place until the character is whole."""
    origin = start_origin(mode)
    smile = "😀".encode()
    with origin.client() as client:
        client.create("s", body=b"ab" + smile[:1])
        tail = client.append("s", smile[1:3])
        with EventStream(origin.port, "s") as events:
            told = control(events.next_write()[-1])["streamNextOffset"]
        assert told == tail[:17] + f"{2:016}"
        client.append("s", smile[3:] + b"c")
        assert client.read("s", told).body == smile + b"c"
        with EventStream(origin.port, "s", told) as events:
            assert events.next_write()[0].data == "😀c"
        assert code_of(client.read("s", told[:-1] + "1")) == (400, "invalid-offset")
        assert code_of(client.read("s", told[:-1] + "4")) == (400, "invalid-offset")


def test_bytes_have_no_characters_to_be_cut(start_origin: StartOrigin) -> None:
    with start_origin().client() as client:
        tail = client.create("s", "application/octet-stream", b"ab" + "ü".encode()[:1])
        assert code_of(client.read("s", tail[:-1] + "2")) == (400, "invalid-offset")
