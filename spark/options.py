"""The options of the `durable_stream` source, and their validation."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from protocol.offsets import NOW, START, is_offset
from spark.http import Address, SourceError
from spark.streams import stream_name

MIB = 1024 * 1024
NAMES = (
    *("url", "token", "accessKey", "stream", "streams", "bucket", "prefix", "start", "end"),
    *("partitionBytes", "maxBytesPerBatch", "pollSeconds", "failOnDataLoss", "failOnError"),
    *("timeoutSeconds", "retries"),
)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Either `streams` or `bucket` selects what to read.

    `start` and `end` are offsets by stream; "" stands for all others.
    """

    address: Address
    streams: tuple[str, ...]
    bucket: str
    prefix: str
    start: Mapping[str, str]
    end: Mapping[str, str]
    partition_bytes: int
    max_bytes_per_batch: int  # 0: no limit
    poll_s: float
    fail_on_data_loss: bool
    fail_on_error: bool  # else an unreadable stream becomes a row of the kind `failure`

    def start_of(self, stream: str) -> str:
        return self.start.get(stream, self.start.get("", START))

    def end_of(self, stream: str) -> str:
        return self.end.get(stream, self.end.get("", NOW))


def parse_options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """SourceError names the invalid option, and never shows the token."""
    options = {name.lower(): value for name, value in given.items()}
    unknown = sorted(set(options) - {name.lower() for name in NAMES})
    if unknown:
        raise SourceError(f"option {unknown[0]!r} is unknown; known options: {', '.join(NAMES)}")
    if streaming and "end" in options:
        raise SourceError("option 'end' is not allowed in a streaming query")
    streams, bucket = _streams(options), options.get("bucket", "")
    if bool(streams) == bool(bucket):
        raise SourceError("give either 'stream', 'streams' or 'bucket'")
    if "prefix" in options and not bucket:
        raise SourceError("option 'prefix' requires 'bucket'")
    return SourceOptions(
        address=Address(
            _sound(options, "url", url_fault),
            _sound(options, "token", token_fault),
            _seconds(options, "timeoutSeconds", 30.0, least=0.001),
            _count(options, "retries", 5),
            _sound(options, "accessKey", token_fault),
        ),
        streams=streams,
        bucket=bucket,
        prefix=options.get("prefix", ""),
        start=_offsets(options, "start"),
        end=_offsets(options, "end"),
        partition_bytes=_count(options, "partitionBytes", 8 * MIB, least=1),
        max_bytes_per_batch=_count(options, "maxBytesPerBatch", 0),
        poll_s=_seconds(options, "pollSeconds", 0.5),
        # A streaming query outlives many streams: deletions are normal there.
        fail_on_data_loss=_flag(options, "failOnDataLoss", not streaming),
        fail_on_error=_flag(options, "failOnError", True),
    )


def url_fault(text: str) -> str:
    """What is wrong with it, if anything. The URL is not shown: it may contain a password."""
    try:
        parts = urlsplit(text)
        bare = not (parts.username or parts.password or parts.query or parts.fragment)
        good = bare and parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    return "" if good else "must look like http://host:port, without user or query"


def token_fault(text: str) -> str:
    good = text.isascii() and text.isprintable() and " " not in text
    return "" if good else "contains invalid characters"


def _sound(options: Mapping[str, str], name: str, fault: Callable[[str], str]) -> str:
    text = options.get(name.lower(), "")
    if said := fault(text):
        raise SourceError(f"option {name!r} {said}")
    return text


def _streams(options: Mapping[str, str]) -> tuple[str, ...]:
    names: Any = []
    if "streams" in options:
        names = _json(options["streams"], "streams")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise SourceError("option 'streams' must be a JSON array of names")
    if "stream" in options:
        names = [*names, options["stream"]]
    if not all(names):
        raise SourceError("options 'stream' and 'streams': empty stream name")
    return tuple(dict.fromkeys(map(stream_name, names)))


def _offsets(options: Mapping[str, str], name: str) -> dict[str, str]:
    text = options.get(name, "")
    if not text:
        return {}
    found: dict[str, Any] = _json(text, name) if text.startswith("{") else {"": text}
    for offset in found.values():
        if not isinstance(offset, str) or not is_offset(offset):
            raise SourceError(f"option {name!r}: {offset!r} is not an offset")
    return {stream_name(stream): offset for stream, offset in found.items()}


def _json(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise SourceError(f"option {name!r} is not JSON") from None


def _count(options: Mapping[str, str], name: str, default: int, least: int = 0) -> int:
    text = options.get(name.lower(), str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text) >= least):
        wanted = "a whole number" + (" above 0" if least else "")
        raise SourceError(f"option {name!r} must be {wanted}, not {text!r}")
    return int(text)


def _seconds(options: Mapping[str, str], name: str, default: float, least: float = 0.0) -> float:
    text = options.get(name.lower(), str(default))
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not least <= seconds < 86_400:
        raise SourceError(f"option {name!r} must be a number of seconds, not {text!r}")
    return seconds


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name.lower(), str(default)).lower()
    if text not in ("true", "false"):
        raise SourceError(f"option {name!r} must be true or false, not {text!r}")
    return text == "true"
