"""The comparisons that `make bench` makes: of the origin, of the gateway in front of it, of the two
ways to the state of a State stream, of the Spark pipeline, and of all under paced load."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from loadtest.load import analytics, cluster, compare, gateway, origin, state
from loadtest.load.contest import Contest, LaunchPeer, Trial
from loadtest.load.goals import no_worse
from loadtest.load.table import Board
from loadtest.peers import names
from loadtest.peers.clusters import CLUSTERS
from loadtest.peers.debian import ensure_debian
from loadtest.peers.names import BEFORE, OURS, WORDS
from loadtest.peers.process import Server, run_process
from loadtest.peers.servers import (
    GATEWAY,
    OPEN_TO_ALL,
    ORIGINS,
    PROXIES,
    Peer,
    Stage,
    ensure_weir,
    need_package,
    of_checkout,
    run_peer,
    start_origin,
)
from loadtest.peers.tokens import SCOPE, write_tokens

Ensure = Callable[[], None]
Servers = Mapping[str, Peer]


@dataclass(frozen=True, slots=True)
class Suite:
    """Peers and scenarios that belong together; `open_stage` is entered for each scenario."""

    name: str
    heading: str
    peers: Mapping[str, Ensure]
    scenarios: tuple[Contest | Trial, ...]
    board: Board
    open_stage: Callable[[Path, Servers], AbstractContextManager[LaunchPeer]]
    servers: Servers = field(default_factory=dict)
    """For those whose peers are servers."""

    def beside(self, checkout: Path) -> "Suite":
        """Ours of another checkout is one more peer, and no measure may be worse than there."""
        if not any(isinstance(scenario, Contest) for scenario in self.scenarios):
            return self
        peer = of_checkout(self.servers[OURS], checkout)
        return replace(
            self,
            peers={**self.peers, BEFORE: peer.ensure},
            scenarios=tuple(map(_judge_by_before, self.scenarios)),
            board=replace(
                self.board,
                peers={**self.board.peers, BEFORE: WORDS[BEFORE]},
                ratios=(*self.board.ratios, BEFORE),
            ),
            servers={**self.servers, BEFORE: peer},
        )


def _judge_by_before(scenario: Contest | Trial) -> Contest | Trial:
    if isinstance(scenario, Trial):
        return scenario
    return replace(
        scenario,
        measures=tuple(
            replace(measure, goals=(*measure.goals, no_worse(BEFORE)))
            for measure in scenario.measures
        ),
        peers=scenario.peers and (*scenario.peers, BEFORE),
    )


@contextmanager
def open_origin_stage(scratch: Path, servers: Servers) -> Iterator[LaunchPeer]:
    @contextmanager
    def launch(peer: str) -> Iterator[Server]:
        folder = scratch / peer
        with run_peer(servers[peer], Stage(folder), scratch / f"{peer}.log") as server:
            yield replace(server, data_dir=folder)

    yield launch


@contextmanager
def open_gateway_stage(
    scratch: Path, servers: Servers, count: int = gateway.TOKENS, scope: str = SCOPE
) -> Iterator[LaunchPeer]:
    """One origin for all who stand in front of one, in memory: it is not what is compared."""
    tokens = write_tokens(scratch, count, scope)
    start = start_origin(scratch / "origin", "memory", OPEN_TO_ALL)
    with run_process(start, scratch / "origin.log") as server:
        yield lambda peer: run_peer(
            servers[peer], Stage(scratch / peer, server.port, tokens), scratch / f"{peer}.log"
        )


@contextmanager
def open_state_stage(scratch: Path, servers: Servers) -> Iterator[LaunchPeer]:
    """The gateway in front of an origin that keeps its data on the disk."""
    tokens, data_dir = write_tokens(scratch, 1), scratch / "origin"
    with run_process(start_origin(data_dir), scratch / "origin.log") as server:

        @contextmanager
        def launch(peer: str) -> Iterator[Server]:
            stage = Stage(scratch / peer, server.port, tokens)
            with run_peer(servers[peer], stage, scratch / f"{peer}.log") as own:
                yield replace(own, data_dir=data_dir)

        yield launch


GATEWAY_PEERS = (
    names.NGINX,
    names.VARNISH,
    names.ENVOY,
    names.PLAIN_ENVOY,
    names.NODE,
    names.NCHAN,
)
ANALYTICS_PEERS = (names.DUCK, names.GOACCESS, names.PYTHON)
SUITES = (
    Suite(
        "origin",
        "weir origin (file-durable) beside the reference server with its defaults.",
        {name: peer.ensure for name, peer in ORIGINS.items()},
        origin.SCENARIOS,
        Board(
            {OURS: "ours", names.FILE: "node file", names.MEMORY: "node memory"},
            ratios=(names.FILE, names.MEMORY),
        ),
        open_origin_stage,
        ORIGINS,
    ),
    Suite(
        "cluster",
        "Three nodes on one machine (storage cluster: three NATS servers that sync always, an S3"
        " server, one disk) beside one origin (file-durable) and the reference server in file mode."
        " Requests go straight to the owner of each stream.",
        {name: peer.ensure for name, peer in CLUSTERS.items()},
        cluster.SCENARIOS,
        Board(
            {OURS: "cluster", names.DURABLE: "file-durable", names.FILE: "node file"},
            ratios=(names.DURABLE, names.FILE),
        ),
        open_origin_stage,
        CLUSTERS,
    ),
    Suite(
        "gateway",
        "weir gateway (1 worker, tokens, scopes, access log) beside nginx, Varnish and Envoy in"
        " front of the same origin, and beside the reference server and nchan.",
        {name: peer.ensure for name, peer in PROXIES.items()},
        gateway.SCENARIOS,
        Board({OURS: "gateway", **{peer: WORDS[peer] for peer in GATEWAY_PEERS}}),
        open_gateway_stage,
        PROXIES,
    ),
    Suite(
        "state",
        "The way to the state of a State stream on weir origin (file-durable): bootstrap after"
        " `weir compact`, beside a full replay before it.",
        {OURS: ensure_weir},
        state.SCENARIOS,
        Board({OURS: "bootstrap", names.REPLAY: "replay"}, ratios=(names.REPLAY,)),
        open_state_stage,
        {OURS: GATEWAY},
    ),
    Suite(
        "analytics",
        "weir report (Spark on this machine, 2 GB of Java heap) beside DuckDB, goaccess and the"
        " plain Python materialiser: programs that start, read the same and end.",
        {
            OURS: analytics.ensure_spark,
            names.DUCK: partial(need_package, "duckdb"),
            names.GOACCESS: partial(ensure_debian, "goaccess", "goaccess"),
            names.PYTHON: ensure_weir,
        },
        analytics.SCENARIOS,
        Board(
            {OURS: "ours", **{peer: WORDS[peer] for peer in ANALYTICS_PEERS}},
            ratios=ANALYTICS_PEERS,
        ),
        open_origin_stage,
        ORIGINS,
    ),
    Suite(
        "load",
        "The scenarios of `weir load` on weir gateway (tokens, scopes, access log), nginx, Varnish"
        " and Envoy (tokens) in front of the same origin in memory, and on the reference server."
        " nginx caches on disk, so its cache survives a restart. Load generator, peer and origin"
        " share the cores.",
        {name: PROXIES[name].ensure for name in compare.PEERS},
        compare.SCENARIOS,
        Board({OURS: "weir", **{peer: WORDS[peer] for peer in compare.PEERS[1:]}}),
        partial(open_gateway_stage, count=compare.TOKENS, scope=compare.SCOPE),
        {name: PROXIES[name] for name in compare.PEERS},
    ),
)
