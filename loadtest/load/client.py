"""What a client of durable streams does, as scripts, and a command that runs a load of them.

`python -m loadtest.load.client crowd|bulk PORT ...` prints one JSON line; a process of its own
so that the measuring program's work never mixes with the load.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence

from loadtest.errors import RunFailedError
from loadtest.load.exchange import Script, run_scripts
from loadtest.load.metrics import percentile
from loadtest.load.replies import Reply

ROOT = "/v1/stream/"
CONTENT_TYPE = "application/octet-stream"
NEXT_OFFSET = "stream-next-offset"
UP_TO_DATE = "stream-up-to-date"
SETUP_TIMEOUT_S = 120.0
CREATE_CONNECTIONS = 64


class WrongAnswerError(RunFailedError):
    """The server answered, but not what a correct server answers."""


def build_request(
    method: str,
    path: str,
    body: bytes | None = None,
    query: str = "",
    *,
    lines: Iterable[str] = (),
    content_type: str = CONTENT_TYPE,
    host: str = "127.0.0.1",
) -> bytes:
    """`lines` are further header lines."""
    head_lines = [f"{method} {ROOT}{path}{query} HTTP/1.1", f"Host: {host}", *lines]
    if body is not None:
        head_lines += [f"Content-Type: {content_type}", f"Content-Length: {len(body)}"]
    head = "\r\n".join([*head_lines, "", ""]).encode("ascii")
    return head + (body or b"")


def expect(reply: Reply, *statuses: int) -> None:
    if reply.status not in statuses:
        raise WrongAnswerError(f"status {reply.status}, not one of {statuses}")


def create_all(paths: Iterable[str], body: bytes, lines: Sequence[str] = ()) -> Script:
    for path in paths:
        reply = yield build_request("PUT", path, body, lines=lines)
        expect(reply, 201)


def append_all(path: str, bodies: Iterable[bytes]) -> Script:
    for body in bodies:
        reply = yield build_request("POST", path, body)
        expect(reply, 200, 204)


def append_until(path: str, body: bytes, deadline: float, times_s: list[float]) -> Script:
    """Append until the deadline (of `time.perf_counter`) and note how long each one took."""
    request = build_request("POST", path, body)
    while (start := time.perf_counter()) < deadline:
        reply = yield request
        expect(reply, 200, 204)
        times_s.append(time.perf_counter() - start)


def follow_stream(path: str, total_bytes: int) -> Script:
    """Read from the start until up to date; the bytes must add up."""
    offset, received = "-1", 0
    while True:
        reply = yield build_request("GET", path, query=f"?offset={offset}")
        expect(reply, 200)
        received += reply.body_bytes
        if reply.headers.get(UP_TO_DATE) == "true":
            break
        if not reply.body_bytes or NEXT_OFFSET not in reply.headers:
            raise WrongAnswerError(f"no way on from offset {offset}")
        offset = reply.headers[NEXT_OFFSET]
    if received != total_bytes:
        raise WrongAnswerError(f"{received} bytes read, {total_bytes} written")


def compare_stream(path: str, content: bytes) -> Script:
    """Like `follow_stream`, but byte by byte; needs kept bodies."""
    offset, received = "-1", bytearray()
    while True:
        reply = yield build_request("GET", path, query=f"?offset={offset}")
        expect(reply, 200)
        received += reply.body
        if reply.headers.get(UP_TO_DATE) == "true" or not reply.body:
            break
        offset = reply.headers[NEXT_OFFSET]
    if received != content:
        raise WrongAnswerError("the bytes read are not the bytes written")


def note_tails(paths: Iterable[str], tails: list[int]) -> Script:
    for path in paths:
        reply = yield build_request("HEAD", path)
        expect(reply, 200)
        tails.append(tail_position(reply.headers[NEXT_OFFSET]))


def tail_position(offset: str) -> int:
    """The byte position of an offset. The reference adds 5 bytes a message: at least the data."""
    return int(offset.rpartition("_")[2])


def create_streams(
    port: int, paths: Sequence[str], body: bytes = b"", *, closed: bool = False
) -> None:
    lines = ["Stream-Closed: true"] if closed else []
    lanes = [paths[lane::CREATE_CONNECTIONS] for lane in range(CREATE_CONNECTIONS)]
    scripts = [create_all(lane, body, lines) for lane in lanes if lane]
    run_scripts(port, scripts, timeout_s=SETUP_TIMEOUT_S)


def fill_stream(port: int, path: str, bodies: Iterable[bytes]) -> None:
    create_streams(port, [path])
    run_scripts(port, [append_all(path, bodies)], timeout_s=SETUP_TIMEOUT_S)


def check_stream(port: int, path: str, content: bytes) -> None:
    script = compare_stream(path, content)
    run_scripts(port, [script], timeout_s=SETUP_TIMEOUT_S, keep_bodies=True)


def read_tails(port: int, paths: Sequence[str]) -> list[int]:
    tails: list[int] = []
    run_scripts(port, [note_tails(paths, tails)], timeout_s=SETUP_TIMEOUT_S)
    return tails


def run_crowd(port: int, path: str, readers: int, total_bytes: int) -> dict[str, float]:
    scripts = [follow_stream(path, total_bytes) for _ in range(readers)]
    cpu_before = time.process_time()
    last_byte_s = run_scripts(port, scripts, timeout_s=60)
    return {"last_byte_s": last_byte_s, "client_cpu_s": time.process_time() - cpu_before}


def run_bulk(port: int, prefix: str, lanes: int, size: int, seconds: float) -> dict[str, float]:
    """Append to the streams PREFIX-0, PREFIX-1 ... at once, each on a connection of its own."""
    body = bytes(range(256)) * (size // 256)
    paths = [f"{prefix}-{lane}" for lane in range(lanes)]
    before = sum(read_tails(port, paths))
    times_s: list[float] = []
    cpu_before = time.process_time()
    deadline = time.perf_counter() + seconds
    scripts = [append_until(path, body, deadline, times_s) for path in paths]
    took_s = run_scripts(port, scripts, timeout_s=seconds + 30)
    cpu_s = time.process_time() - cpu_before
    missing = len(times_s) * len(body) - (sum(read_tails(port, paths)) - before)
    if missing > 0:
        raise WrongAnswerError(f"{missing} acknowledged bytes are not in the streams")
    return {
        "rate": len(times_s) / took_s,
        "p50_ms": percentile(times_s, 0.5) * 1000,
        "p99_ms": percentile(times_s, 0.99) * 1000,
        "client_cpu_s": cpu_s,
    }


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtest.load.client")
    kinds = parser.add_subparsers(dest="kind", required=True)
    crowd = kinds.add_parser("crowd")
    bulk = kinds.add_parser("bulk")
    for kind in (crowd, bulk):
        kind.add_argument("port", type=int)
        kind.add_argument("path")
        kind.add_argument("connections", type=int)
        kind.add_argument("size", type=int)
    bulk.add_argument("seconds", type=float)
    options = parser.parse_args(arguments)
    port, path = options.port, options.path
    try:
        if options.kind == "crowd":
            result = run_crowd(port, path, options.connections, options.size)
        else:
            result = run_bulk(port, path, options.connections, options.size, options.seconds)
    except RunFailedError as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
