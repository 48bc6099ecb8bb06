"""How many streams there may be, and how large."""

import pytest

from tests.conftest import StartOrigin
from tests.helpers.origin import MODES
from tests.helpers.rawhttp import (
    PREFIX,
)
from tests.origin.conftest import code


def test_a_stream_has_a_largest_size(start_origin: StartOrigin) -> None:
    with start_origin(limits={"max_stream_bytes": 100}).client() as client:
        kind = {"Content-Type": "text/plain"}
        client.create("s", body=b"x" * 60)
        assert code(client("POST", "s", kind, b"x" * 41)) == (413, "stream-too-large")
        client.append("s", b"x" * 40)
        assert code(client("POST", "s", kind, b"x")) == (413, "stream-too-large")
        assert code(client("PUT", "t", kind, b"x" * 101)) == (413, "stream-too-large")
        client.append("s", b"", stream_closed="true")
        assert len(client.read("s").body) == 100


@pytest.mark.parametrize("mode", MODES)
def test_all_streams_together_have_a_largest_size(start_origin: StartOrigin, mode: str) -> None:
    limits = {"max_total_bytes": 100, "max_memory_bytes": 100}
    with start_origin(mode, limits=limits).client() as client:
        client.create("a", body=b"x" * 60)
        kind = {"Content-Type": "text/plain"}
        assert code(client("PUT", "b", kind, b"x" * 41)) == (413, "server-full")
        client.create("b", body=b"x" * 40)
        assert code(client("POST", "a", kind, b"x")) == (413, "server-full")
        client.create("fork", stream_forked_from=PREFIX + "a")  # inherits without storing
        assert client("DELETE", "b").status == 204
        client.append("a", b"x" * 40)


def test_there_is_a_largest_number_of_streams(start_origin: StartOrigin) -> None:
    with start_origin(limits={"max_streams": 2}).client() as client:
        client.create("a")
        client.create("b")
        assert code(client("PUT", "c")) == (413, "too-many-streams")
        assert client("PUT", "a", {"Content-Type": "text/plain"}).status == 200
        assert client("DELETE", "a").status == 204
        client.create("c")
