"""Section 5: offsets in paths are encoded and decoded as everything in paths is."""

from urllib.parse import quote, urlsplit

import pytest

from tests.extension.conftest import AT, BUCKET, Api, problem


def encode_all(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


@pytest.mark.parametrize(
    "spelling",
    [
        str,
        encode_all,
        lambda offset: encode_all(offset).lower(),
        lambda offset: quote(offset, safe=""),
        lambda offset: offset.replace("_", "%5F"),
        lambda offset: offset.replace("_", "%5f"),
    ],
)
def test_5_an_encoded_offset_is_the_same_offset(api: Api, path: str, spelling: object) -> None:
    assert callable(spelling)
    tail = api.create(path, body=b"one")
    encoded = spelling(tail)
    reply = api.try_publish(path, encoded, b"s")
    assert (reply.status, reply["Stream-Snapshot-Offset"]) == (204, tail)
    assert api.snapshot(path, encoded).body == api.snapshot(path, tail).body == b"s"
    assert problem(api("DELETE", f"{path}/snapshot/{encoded}"))[0] == 409


def test_5_the_redirect_can_be_followed_as_it_is(api: Api) -> None:
    """Also when the stream's name needs encoding."""
    path = f"{BUCKET}/{quote('grüße 100% {a}')}"
    tail = api.create(path, body=b"one")
    api.publish(path, tail, b"s")
    location = urlsplit(api("GET", f"{path}/snapshot")["Location"])
    assert location.path.isascii() and " " not in location.path
    assert api("GET", location.path).body == b"s"


def test_5_the_parts_of_a_path_may_be_encoded_too(api: Api, path: str) -> None:
    tail = api.create(path, body=b"one")
    assert api("PUT", f"{path}/%73napshot/{tail}", {}, b"s").status == 204
    assert api("GET", f"{path}/snapsho%74").status == 307
    assert api("GET", f"{path}/%62ootstrap").status == 200


@pytest.mark.parametrize(
    "offset",
    [
        "%",
        "%zz",
        "%00",
        "%2F",
        "a%2Fb",
        "..",
        "%2e%2e",
        quote(AT(3)).replace("_", "%255F"),
        AT(3).replace("_", "%EF%BC%BF"),
        AT(3).replace("3", "%D9%A3"),
        AT(3) + "%0A",
    ],
)
def test_5_what_decodes_to_no_offset_is_refused(api: Api, path: str, offset: str) -> None:
    api.create(path, body=b"one")
    for method in ("PUT", "GET", "DELETE"):
        reply = api(method, f"{path}/snapshot/{offset}", {}, b"s" if method == "PUT" else b"")
        assert reply.status == 400 or (method != "PUT" and reply.status == 404)
    assert api("GET", f"{path}/snapshot").status == 404


def test_5_the_query_is_no_part_of_the_offset(api: Api, path: str) -> None:
    tail = api.create(path, body=b"one")
    api.publish(path, f"{tail}?x=y", b"s")
    assert api.snapshot(path, f"{tail}?offset=-1").body == b"s"
