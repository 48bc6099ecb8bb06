"""Options of the `durable_stream` source."""

import pytest

from protocol.offsets import NOW, START
from spark.http import SourceError
from spark.options import MIB, NAMES, parse_options
from tests.spark.documented import documented

URL = {"url": "http://127.0.0.1:4437"}
ONE = URL | {"stream": "a"}


def test_defaults() -> None:
    options = parse_options(ONE, streaming=False)
    assert options.address.url == "http://127.0.0.1:4437"
    assert (options.streams, options.bucket) == (("a",), "")
    assert (options.start_of("a"), options.end_of("a")) == (START, NOW)
    assert options.partition_bytes == 8 * MIB
    assert options.fail_on_data_loss


def test_a_streaming_query_outlives_streams() -> None:
    assert not parse_options(ONE, streaming=True).fail_on_data_loss
    assert parse_options(ONE | {"failOnDataLoss": "true"}, streaming=True).fail_on_data_loss


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("a", "a"),
        ("a/b", "a/b"),
        ("/v1/stream/a/b", "a/b"),
        ("/v1/stream/a%20b", "a b"),
        ("grüße", "grüße"),
        ("/ds/bucket/x", "/ds/bucket/x"),
        ("/ds/bucket/%C3%BC", "/ds/bucket/ü"),
    ],
)
def test_a_stream_has_one_name_however_it_is_written(given: str, name: str) -> None:
    assert parse_options(URL | {"stream": given}, streaming=False).streams == (name,)


def test_a_stream_that_is_named_twice_is_read_once() -> None:
    both = '["b", "/v1/stream/a", "a"]'
    assert parse_options(URL | {"streams": both}, streaming=False).streams == ("b", "a")


def test_offsets_are_for_all_streams_or_for_each() -> None:
    options = parse_options(
        ONE | {"start": '{"/v1/stream/a": "7", "/ds/bucket/x": "8"}', "end": "9"}, streaming=False
    )
    assert [options.start_of(name) for name in ("a", "/ds/bucket/x", "c")] == ["7", "8", START]
    assert options.end_of("c") == "9"


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({}, "'stream', 'streams' or 'bucket'"),
        ({"stream": "a", "bucket": "b"}, "'stream', 'streams' or 'bucket'"),
        ({"stream": ""}, "empty stream name"),
        ({"streams": '["a", ""]'}, "empty stream name"),
        ({"streams": "a"}, "'streams' is not JSON"),
        ({"streams": '"a"'}, "JSON array of names"),
        ({"streams": "[1]"}, "JSON array of names"),
        ({"stream": "a", "prefix": "x"}, "requires 'bucket'"),
        ({"stream": "a", "strat": "7"}, "'strat' is unknown"),
        ({"stream": "a", "start": "a b"}, "'a b' is not an offset"),
        ({"stream": "a", "end": '{"a": 7}'}, "7 is not an offset"),
        ({"stream": "a", "start": "{"}, "'start' is not JSON"),
        ({"stream": "a", "partitionBytes": "8m"}, "'partitionBytes' must be a whole number"),
        ({"stream": "a", "partitionBytes": "0"}, "'partitionBytes' must be a whole number above 0"),
        ({"stream": "a", "timeoutSeconds": "0"}, "'timeoutSeconds' must be"),
        ({"stream": "a", "retries": "-1"}, "'retries' must be a whole number"),
        ({"stream": "a", "pollSeconds": "nan"}, "'pollSeconds' must be a number of seconds"),
        ({"stream": "a", "failOnDataLoss": "yes"}, "'failOnDataLoss' must be true or false"),
        ({"stream": "a", "token": "x\ny"}, "'token' contains invalid characters"),
        ({"stream": "a", "url": "127.0.0.1:4437"}, "'url' must look like"),
        ({"stream": "a", "url": "ftp://host"}, "'url' must look like"),
        ({"stream": "a", "url": "http://user:pass@host"}, "'url' must look like"),
        ({"stream": "a", "url": "http://host:port"}, "'url' must look like"),
        ({"stream": "a", "url": "http://host/?x=1"}, "'url' must look like"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(given: dict[str, str], complaint: str) -> None:
    with pytest.raises(SourceError, match=complaint):
        parse_options(URL | given, streaming=False)


def test_a_streaming_query_has_no_end() -> None:
    with pytest.raises(SourceError, match="'end'"):
        parse_options(ONE | {"end": "7"}, streaming=True)


def test_a_wrong_token_is_not_shown() -> None:
    with pytest.raises(SourceError) as caught:
        parse_options(ONE | {"token": "very secret"}, streaming=False)
    assert "secret" not in str(caught.value)


def test_names_are_known_in_any_case() -> None:
    values = {"url": URL["url"], "bucket": "b", "failOnDataLoss": "true", "failOnError": "false"}
    numbers = dict.fromkeys(("partitionBytes", "maxBytesPerBatch", "timeoutSeconds"), "5")
    others = {"retries": "1", "pollSeconds": "1", "prefix": "x", "start": "1", "end": "2"}
    given = values | numbers | others | {"token": "t", "accessKey": "k"}
    assert {*given, "stream", "streams"} == set(NAMES)
    upper = {name.upper(): value for name, value in given.items()}
    assert parse_options(upper, streaming=False) == parse_options(given, streaming=False)


def test_every_option_is_documented() -> None:
    assert sorted(documented("option")) == sorted(NAMES)
