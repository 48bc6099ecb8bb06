"""The comparisons that `bench` makes: of the origin, of the gateway in front of it, of the two ways
to the state of a State stream, and of the Spark pipeline."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from loadtest.load.analytics import ANALYTICS_SCENARIOS, ensure_analytics_peer
from loadtest.load.gateway import GATEWAY_SCENARIOS, TOKENS
from loadtest.load.goals import OURS
from loadtest.load.origin import SCENARIOS, Contest, Trial
from loadtest.load.state import STATE_SCENARIOS
from loadtest.load.table import ANALYTICS_BOARD, GATEWAY_BOARD, ORIGIN_BOARD, STATE_BOARD, Board
from loadtest.peers.process import PEERS, Server, ensure_peer, run_process, run_server
from loadtest.peers.servers import PROXIES, Stage, ensure_proxy, run_proxy, start_origin
from loadtest.peers.tokens import write_tokens

LaunchPeer = Callable[[str], AbstractContextManager[Server]]


@dataclass(frozen=True, slots=True)
class Suite:
    """Peers and scenarios that belong together; `open_stage` is entered for each scenario."""

    name: str
    heading: str
    peers: tuple[str, ...]
    scenarios: tuple[Contest | Trial, ...]
    board: Board
    ensure_peer: Callable[[str], None]
    open_stage: Callable[[Path], AbstractContextManager[LaunchPeer]]


@contextmanager
def open_origin_stage(scratch: Path) -> Iterator[LaunchPeer]:
    yield lambda peer: run_server(PEERS[peer], scratch / peer, scratch / f"{peer}.log")


@contextmanager
def open_gateway_stage(scratch: Path) -> Iterator[LaunchPeer]:
    """One origin for all who stand in front of one."""
    tokens = write_tokens(scratch, TOKENS)
    with run_process(start_origin(scratch / "origin"), scratch / "origin.log") as origin:
        yield partial(_launch_proxy, scratch, Stage(scratch, origin.port, tokens))


def _launch_proxy(scratch: Path, stage: Stage, peer: str) -> AbstractContextManager[Server]:
    own = Stage(scratch / peer, stage.origin_port, stage.tokens)
    return run_proxy(peer, own, scratch / f"{peer}.log")


@contextmanager
def open_state_stage(scratch: Path) -> Iterator[LaunchPeer]:
    """The gateway in front of an origin that keeps its data on the disk."""
    tokens, data_dir = write_tokens(scratch, 1), scratch / "origin"
    with run_server(PEERS[OURS], data_dir, scratch / "origin.log") as origin:
        stage = Stage(scratch, origin.port, tokens)

        @contextmanager
        def launch(peer: str) -> Iterator[Server]:
            with _launch_proxy(scratch, stage, peer) as server:
                yield replace(server, data_dir=data_dir)

        yield launch


ORIGIN_SUITE = Suite(
    "origin",
    "weir origin (file-durable) beside @durable-streams/server 0.3.7 with its defaults.",
    tuple(PEERS),
    SCENARIOS,
    ORIGIN_BOARD,
    ensure_peer,
    open_origin_stage,
)
GATEWAY_SUITE = Suite(
    "gateway",
    "weir gateway (1 worker, tokens, scopes, access log) beside nginx, Varnish and Envoy in front"
    " of the same origin, and beside the reference server and nchan.",
    tuple(PROXIES),
    GATEWAY_SCENARIOS,
    GATEWAY_BOARD,
    ensure_proxy,
    open_gateway_stage,
)
STATE_SUITE = Suite(
    "state",
    "The way to the state of a State stream on weir origin (file-durable): bootstrap after `weir"
    " compact`, beside a full replay before it.",
    (OURS,),
    STATE_SCENARIOS,
    STATE_BOARD,
    ensure_peer,
    open_state_stage,
)
ANALYTICS_SUITE = Suite(
    "analytics",
    "weir report (Spark on this machine, 2 GB of Java heap) beside DuckDB, goaccess and the plain"
    " Python materialiser: programs that start, read the same and end.",
    tuple(ANALYTICS_BOARD.peers),
    ANALYTICS_SCENARIOS,
    ANALYTICS_BOARD,
    ensure_analytics_peer,
    open_origin_stage,
)
SUITES = (ORIGIN_SUITE, GATEWAY_SUITE, STATE_SUITE, ANALYTICS_SUITE)
