"""A reader that comes to a State stream: by a full replay, or by its bootstrap.

`python -m loadtest.catchup replay|bootstrap PORT PATH TIMES TOKENS` prints one JSON line. Every
read is made twice: counting its bytes only, and materialising its messages as they come.
"""

import argparse
import json
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from email.message import Message as MimeHeaders
from pathlib import Path
from typing import TypeVar

from loadtest.errors import RunFailedError
from loadtest.load.client import NEXT_OFFSET, UP_TO_DATE, WrongAnswerError, build_request, expect
from loadtest.load.exchange import Script, run_scripts
from loadtest.load.metrics import median
from loadtest.load.replies import Reply
from loadtest.peers.tokens import read_tokens
from protocol.offsets import START
from protocol.state import Materialised, parse_message, snapshot_messages, split_array

READ_TIMEOUT_S = 60.0

T = TypeVar("T")


@dataclass(slots=True)
class Reading:
    """What one read has brought so far."""

    materialises: bool
    received_bytes: int = 0
    state: Materialised = field(default_factory=Materialised)

    def take(self, reply: Reply, split: Callable[[Reply], list[bytes]]) -> None:
        self.received_bytes += reply.body_bytes
        if self.materialises:
            for message in split(reply):
                self.state.apply(parse_message(message))


def replay(path: str, lines: Sequence[str], reading: Reading) -> Script:
    """From the start, answer by answer, to the tail."""
    offset = START
    while True:
        reply = yield build_request("GET", path, query=f"?offset={offset}", lines=lines)
        expect(reply, 200)
        reading.take(reply, lambda reply: split_array(bytes(reply.body)))
        if reply.headers.get(UP_TO_DATE) == "true":
            return
        if reply.headers.get(NEXT_OFFSET, offset) == offset:
            raise WrongAnswerError(f"no way on from offset {offset}")
        offset = reply.headers[NEXT_OFFSET]


def bootstrap(path: str, lines: Sequence[str], reading: Reading) -> Script:
    reply = yield build_request("GET", f"{path}/bootstrap", lines=lines)
    expect(reply, 200)
    if reply.headers.get(UP_TO_DATE) != "true":
        raise WrongAnswerError("the bootstrap does not reach the tail")
    reading.take(reply, bootstrap_messages)


def bootstrap_messages(reply: Reply) -> list[bytes]:
    snapshot, *updates = split_parts(reply.headers.get("content-type", ""), bytes(reply.body))
    return [*(split_array(snapshot) if snapshot else ()), *updates]


def split_parts(content_type: str, body: bytes) -> list[bytes]:
    """The contents of a multipart entity whose parts all have headers."""
    headers = MimeHeaders()
    headers["Content-Type"] = content_type
    boundary = headers.get_boundary()
    if boundary is None:
        raise WrongAnswerError(f"{content_type!r} has no boundary")
    _, *parts = (b"\r\n" + body).split(f"\r\n--{boundary}".encode())
    if len(parts) < 2 or not parts[-1].startswith(b"--"):
        raise WrongAnswerError("the parts do not come to an end")
    return [part.partition(b"\r\n\r\n")[2] for part in parts[:-1]]


WAYS: dict[str, Callable[[str, Sequence[str], Reading], Script]] = {
    "replay": replay,
    "bootstrap": bootstrap,
}


def fingerprint(state: Materialised) -> int:
    """The same for equal states, whatever way they came about."""
    return zlib.crc32(snapshot_messages(state, START))


def run_catchup(way: str, port: int, path: str, times: int, token: str) -> dict[str, float]:
    """Median times of as many reads; all of them must come to the same state."""
    lines = [f"Authorization: Bearer {token}"]

    def read(*, materialises: bool) -> tuple[float, Reading]:
        reading = Reading(materialises)
        script = WAYS[way](path, lines, reading)
        took_s = run_scripts(port, [script], timeout_s=READ_TIMEOUT_S, keep_bodies=materialises)
        return took_s, reading

    cpu_before = time.process_time()
    counted = [read(materialises=False) for _ in range(times)]
    cpu_s = time.process_time() - cpu_before
    materialised = [read(materialises=True) for _ in range(times)]
    state = _only("states", [reading.state for _, reading in materialised])
    sizes = [reading.received_bytes for _, reading in counted + materialised]
    return {
        "counted_s": median([took_s for took_s, _ in counted]),
        "materialised_s": median([took_s for took_s, _ in materialised]),
        "received_bytes": _only("sizes", sizes),
        "fingerprint": fingerprint(state),
        "client_cpu": cpu_s / sum(took_s for took_s, _ in counted),
    }


def _only(what: str, values: Sequence[T]) -> T:
    if any(value != values[0] for value in values):
        raise WrongAnswerError(f"the reads came to different {what}")
    return values[0]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtest.catchup")
    parser.add_argument("way", choices=list(WAYS))
    parser.add_argument("port", type=int)
    parser.add_argument("path")
    parser.add_argument("times", type=int)
    parser.add_argument("tokens", type=Path, help="a file with one token a line")
    options = parser.parse_args(arguments)
    try:
        token = read_tokens(options.tokens)[0]
        result = run_catchup(options.way, options.port, options.path, options.times, token)
    except RunFailedError as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
