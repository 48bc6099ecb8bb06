"""What an attack costs others: the answers of another tenant, and how long each took.

    with neighbour(gateway.port, encode_request("GET", target, bearer(token))) as other:
        quiet = [other.ask(200) for _ in range(ROUNDS)]
        with watch_memory(gateway.process.pid) as memory, attack():
            busy = [other.ask(200) for _ in range(ROUNDS)]
        with other.asking() as felt, attack():  # or for as long as a block runs
            ...
        check_spared(quiet, busy)
    assert grown_bytes(memory) < 64 * MIB

The tenant is a process of its own, so that what the attackers do in ours does not slow it down.
"""

import json
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO

from loadtest.peers.memory import PeakMemory
from tests.helpers.rawhttp import Closed, Connection
from tests.helpers.server import ROOT

ROUNDS = 3
WORSE = 5.0  # times the quiet 99th percentile that an attack may make it
FLOOR_S = 0.010  # below this, a quiet 99th percentile is the machine's mood
NO_ANSWER = 0


@dataclass(frozen=True, slots=True)
class Felt:
    """What one tenant's requests got. Status 0 is a connection that ended, or no answer in time."""

    seconds: tuple[float, ...]
    statuses: Counter[int]

    @property
    def p99_s(self) -> float:
        return sorted(self.seconds)[len(self.seconds) * 99 // 100]

    @property
    def failed(self) -> dict[int, int]:
        """How many got something else than what they asked for, by status."""
        return {status: n for status, n in self.statuses.items() if not _is_good(status)}


def _is_good(status: int) -> bool:
    return 200 <= status < 300


class Neighbour:
    """Sends its requests one after the other, in turn, over one connection that it keeps, until
    one of them fails."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def ask(self, count: int) -> Felt:
        """So many requests, now."""
        self._say(count)
        return self._hear()

    @contextmanager
    def asking(self) -> Iterator[list[Felt]]:
        """Requests for as long as the block runs; what they got is in the list afterwards."""
        felt: list[Felt] = []
        self._say(0)
        try:
            yield felt
        finally:
            self._say(0)
            felt.append(self._hear())

    def _say(self, count: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()

    def _hear(self) -> Felt:
        assert self._process.stdout is not None
        told = json.loads(self._process.stdout.readline())
        return Felt(tuple(seconds for _, seconds in told), Counter(status for status, _ in told))


@contextmanager
def neighbour(port: int, *requests: bytes) -> Iterator[Neighbour]:
    """Another tenant of the server on that port."""
    command = [sys.executable, "-m", __name__, str(port)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdin is not None
        process.stdin.write(json.dumps([each.decode("latin-1") for each in requests]) + "\n")
        yield Neighbour(process)
    finally:
        process.kill()
        process.communicate()


def check_spared(quiet: Sequence[Felt], busy: Sequence[Felt]) -> None:
    """Nobody was turned away, and nobody waited much longer than in quiet times. Of several rounds
    the best counts, on either side: other work on the machine is not the attack's."""
    for felt in (*quiet, *busy):
        assert not felt.failed, f"turned away: {felt.failed} of {len(felt.seconds)}"
    before, during = (min(felt.p99_s for felt in rounds) for rounds in (quiet, busy))
    limit = WORSE * max(before, FLOOR_S)
    assert during < limit, f"p99 {during * 1000:.1f} ms after {before * 1000:.1f} ms"


def grown_bytes(memory: PeakMemory) -> int:
    return memory.highest - memory.start


# -- the process -------------------------------------------------------------------------------


def _serve(port: int) -> None:
    orders = open(0, "rb", buffering=0)  # what is read ahead, `select` would not see
    requests = [text.encode("latin-1") for text in json.loads(orders.readline())]
    asker = _Asker(port)
    while line := orders.readline():
        count, told = int(line), list[tuple[int, float]]()
        for number in _numbers(count, orders):
            told.append(asker.ask(requests[number % len(requests)]))
            if not _is_good(told[-1][0]):  # the rest would wait as long
                break
        if count == 0:
            orders.readline()
        print(json.dumps(told), flush=True)


def _numbers(count: int, orders: IO[bytes]) -> Iterator[int]:
    """So many, or for 0 until the next line comes, and one at least."""
    number = 0
    while number < count or (count == 0 and (number == 0 or not _has_line(orders))):
        yield number
        number += 1


def _has_line(orders: IO[bytes]) -> bool:
    return bool(select.select([orders], [], [], 0)[0])


class _Asker:
    def __init__(self, port: int) -> None:
        self._port = port
        self._connection: Connection | None = None

    def ask(self, request: bytes) -> tuple[int, float]:
        """Status and seconds."""
        started = time.monotonic()
        status = NO_ANSWER
        with suppress(Closed, OSError):
            status = self._ask(request)
        if status == NO_ANSWER:
            self._leave()
        return status, time.monotonic() - started

    def _ask(self, request: bytes) -> int:
        if self._connection is None:
            self._connection = Connection(self._port)
        self._connection.send(request)
        method = request.partition(b" ")[0].decode()
        reply = self._connection.read_response(method)
        if reply.get("Connection") == "close":
            self._leave()
        return reply.status

    def _leave(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
