"""Nodes of one cluster in this process, on a real NATS server: who owns what, and when."""

import asyncio
import gc
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest

from origin.cluster import control, node
from origin.cluster.assignment import Assignment, begin, take
from origin.cluster.control import Conflict, Control, Lease, NodeRecord, clock
from origin.registry import Totals
from origin.shard import Shard
from origin.storage.base import StorageFailed
from origin.storage.cluster import journal
from origin.storage.cluster.clusterstore import ClusterStorage
from origin.storage.cluster.jetstream import Away, JetStream
from protocol.clustermap import shard_of
from tests.helpers.nats import cluster_name, nats_servers, shared_nats
from tests.helpers.origin import LocalOrigin, make_config
from tests.helpers.rawhttp import PREFIX, Client, encode_request
from wire.settings import SettingsError

SHARDS = 6
KIND = {"Content-Type": "text/plain"}
WAIT_SECS = 60.0

Start = Callable[..., LocalOrigin]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as stack:

        def start_node(number: int, **cluster: object) -> LocalOrigin:
            nats = shared_nats()
            settings = {
                "name": cluster_name(tmp_path),
                "nats_urls": tuple(nats.urls),
                "nats_monitor_urls": tuple(nats.monitor_urls),
                "replicas": 1,
                "shards": SHARDS,
                "renew_secs": 0.5,
                **cluster,
            }
            origin = LocalOrigin(
                make_config(
                    tmp_path / f"n{number}",
                    "cluster",
                    server={"node_id": f"n{number}"},
                    cluster=settings,
                    cold={"backend": "fs", "fs_path": str(tmp_path / "objects")},
                )
            )
            origin.start()
            stack.callback(origin.stop)
            return origin

        yield start_node


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def owned(origin: LocalOrigin) -> set[int]:
    shards: set[int] = origin.call(lambda: {each.number for each in origin.origin.shards.all()})
    return shards


def are_spread(*origins: LocalOrigin) -> bool:
    parts = [owned(origin) for origin in origins]
    counts = list(map(len, parts))
    return sum(counts) == len(set().union(*parts)) == SHARDS and max(counts) - min(counts) <= 1


def names_in_each_shard() -> list[str]:
    found: dict[int, str] = {}
    for number in range(1000):
        found.setdefault(shard_of(f"s{number}", SHARDS), f"s{number}")
    return [found[shard] for shard in range(SHARDS)]


def page(origin: LocalOrigin, path: str) -> tuple[int, str]:
    with origin.connect() as connection:
        reply = connection.request("GET", path)
        return reply.status, reply.body.decode()


def append_everywhere(origin: LocalOrigin, data: bytes) -> None:
    with origin.client() as client:
        for name in names_in_each_shard():
            wait_until(lambda name=name: client("POST", name, KIND, data).status == 204)  # type: ignore[misc]


def contents(origin: LocalOrigin) -> set[bytes]:
    with origin.client() as client:
        return {client.read(name).body for name in names_in_each_shard()}


def create_everywhere(client: Client) -> None:
    for name in names_in_each_shard():
        client.create(name)


def test_a_start_waits_for_its_shards_even_if_its_first_turn_fails(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn, turns = node.ClusterNode._turn, []

    async def fail_first(self: node.ClusterNode) -> None:
        turns.append(self)
        if len(turns) == 1:
            raise Away("NATS is busy")
        await turn(self)

    monkeypatch.setattr(node.ClusterNode, "_turn", fail_first)
    assert owned(start(1)) == set(range(SHARDS))


def test_shards_are_spread_when_a_node_comes_and_nothing_is_lost(start: Start) -> None:
    one = start(1)
    wait_until(lambda: are_spread(one))
    with one.client() as client:
        create_everywhere(client)
    append_everywhere(one, b"first,")
    two, three = start(2), start(3)
    wait_until(lambda: are_spread(one, two, three))
    append_everywhere(two, b"second,")
    for origin in (one, two, three):
        assert contents(origin) == {b"first,second,"}
        wait_until(lambda origin=origin: page(origin, "/readyz/cluster")[0] == 200)  # type: ignore[misc]


def test_a_node_that_leaves_hands_over_at_once(start: Start) -> None:
    one, two = start(1), start(2)
    wait_until(lambda: are_spread(one, two))
    with one.client() as client:
        create_everywhere(client)
    append_everywhere(one, b"kept,")
    one.stop()
    wait_until(lambda: are_spread(two))
    assert contents(two) == {b"kept,"}
    append_everywhere(two, b"more,")
    assert contents(two) == {b"kept,more,"}


def test_a_silent_node_is_replaced_after_its_lease(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "MARGIN_SECS", 1.0)
    one, two = start(1, lease_secs=3.0), start(2, lease_secs=3.0)
    wait_until(lambda: are_spread(one, two))
    with one.client() as client:
        create_everywhere(client)
    append_everywhere(one, b"kept,")
    silent = one.origin._node
    assert silent is not None and isinstance(silent, node.ClusterNode)
    one.call(lambda: silent._turns.cancel() if silent._turns else None)
    wait_until(lambda: are_spread(two))
    # It does not know yet that it lost its shards, but says nothing about them.
    assert one.call(lambda: not silent.is_fresh())
    with one.client() as client:
        assert {client.read(name).status for name in names_in_each_shard()} <= {200, 503}
    assert contents(two) == {b"kept,"}
    append_everywhere(two, b"more,")
    assert contents(two) == {b"kept,more,"}


class WithholdingJetStream:
    """Stores what is published to a subject, and does not say so."""

    def __init__(self, real: JetStream, subject: str) -> None:
        self._real = real
        self._subject = subject
        self.has_stored = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def publish(self, subject: str, data: bytes, headers: Mapping[str, str]) -> int:
        seq = await self._real.publish(subject, data, headers)
        if subject == self._subject:
            self.has_stored.set()
            await asyncio.Event().wait()
        return seq


@pytest.mark.parametrize("connection", ["keep-alive", "close"], ids=["plain", "ordinary"])
def test_an_append_that_is_on_its_way_when_its_shard_is_lost_may_be_stored(
    start: Start, connection: str
) -> None:
    origin = start(1)
    wait_until(lambda: are_spread(origin))
    with origin.client() as client:
        client.create("s")
    tested = origin.origin._node
    assert isinstance(tested, node.ClusterNode)
    shard = tested.holdings.open[shard_of("s", SHARDS)]
    written = shard.storage._journal
    withholding = WithholdingJetStream(written._jetstream, written._subject)
    written._jetstream = cast(JetStream, withholding)
    with origin.connect() as writer:
        head = KIND | {"Connection": connection}
        writer.send(encode_request("POST", PREFIX + "s", head, b"once"))
        assert withholding.has_stored.wait(WAIT_SECS)
        origin.call(lambda: tested.holdings.lose(shard, None))
        reply = writer.read_response("POST")
    assert (reply.status, reply.json()["code"]) == (503, "unknown-outcome")
    origin.call(tested._poked.set)
    with origin.client() as client:
        wait_until(lambda: client.read("s").body == b"once")


def test_a_node_that_founds_the_cluster_at_the_same_time_as_another_waits_for_its_record(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The servers refuse a second record before the first one can be read."""
    assign, refusals = Control.assign, [Conflict(), Conflict()]

    async def refuse_first(self: Control, version: int, assignment: Assignment) -> int:
        if refusals:
            raise refusals.pop()
        return await assign(self, version, assignment)

    monkeypatch.setattr(Control, "assign", refuse_first)
    assert are_spread(start(1))


class ScriptedControl:
    """The records of a cluster of `a`, which owns everything, and `b`, whose turn it is."""

    def __init__(self) -> None:
        self.lease = Lease()
        self.alive = {"b"}
        self.version = 1
        self.comes_back = ""
        self.taken: list[set[int]] = []
        self._assignment = take(begin("c", "fs:/", SHARDS), range(SHARDS), "a")

    async def renew(self, record: NodeRecord) -> float:
        return clock()

    async def assignment(self) -> tuple[int, Assignment]:
        return self.version, self._assignment

    async def nodes(self) -> dict[str, tuple[int, NodeRecord]]:
        return {id_: (1, NodeRecord(id_, "http://x", 1, "m", id_)) for id_ in self.alive}

    async def note_tails(self, numbers: Mapping[int, int]) -> None:
        pass

    async def assign(self, version: int, assignment: Assignment) -> int:
        if self.comes_back:  # with a lease again, it has written the record before it counts
            self.alive.add(self.comes_back)
            self.version, self.comes_back = self.version + 1, ""
        if version != self.version:
            raise Conflict
        self.taken.append(set(assignment.of("b")))
        self.version += 1
        return self.version


def scripted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[node.ClusterNode, ScriptedControl]:
    control, missing = ScriptedControl(), cast(Any, None)
    config = make_config(
        tmp_path,
        "cluster",
        server={"node_id": "b"},
        cluster={"nats_urls": ("nats://x",), "shards": SHARDS},
        cold={"backend": "fs", "fs_path": str(tmp_path)},
    )
    tested = node.ClusterNode(config, missing, missing, missing, Totals())
    monkeypatch.setattr(tested, "_control", control)
    monkeypatch.setattr(tested.holdings, "begin", lambda number, epoch: None)
    return tested, control


async def test_a_node_that_has_come_back_keeps_its_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tested, control = scripted(tmp_path, monkeypatch)
    control.comes_back = "a"
    await tested._turn()
    assert control.taken == []


async def test_a_shard_that_is_still_being_opened_is_not_taken_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken away and is without an owner again before the first attempt has ended."""
    tested, control = scripted(tmp_path, monkeypatch)
    attempt = asyncio.create_task(asyncio.sleep(0))
    tested.holdings.opening[0] = attempt
    await tested._turn()
    assert control.taken[-1] == set(range(1, SHARDS))
    await attempt


def test_a_farewell_does_not_depend_on_a_note(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = start(1, lease_secs=3600.0), start(2, lease_secs=3600.0)
    wait_until(lambda: are_spread(one, two))

    async def fail(self: Control, numbers: Mapping[int, int]) -> None:
        raise Away("its answer was lost")

    monkeypatch.setattr(Control, "note_tails", fail)
    one.stop()
    monkeypatch.undo()
    wait_until(lambda: are_spread(two))


def test_what_may_be_lost_on_a_power_cut_is_no_damage(start: Start, tmp_path: Path) -> None:
    may_lose = {"journal_sync": "may-lose-on-power-cut"}
    one = start(1, **may_lose)
    wait_until(lambda: are_spread(one))
    tested = one.origin._node
    assert isinstance(tested, node.ClusterNode)
    one.run(tested._control.note_tails({3: 1000}))
    one.stop()
    assert are_spread(start(2, **may_lose))


def test_a_shard_that_failed_after_its_recovery_leaves_nothing_running(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Shard.start
    failed: list[Shard] = []

    async def fail_once(self: Shard) -> None:
        await real(self)
        if not failed:
            failed.append(self)
            raise StorageFailed("not this time")

    monkeypatch.setattr(Shard, "start", fail_once)
    origin = start(1)
    wait_until(lambda: are_spread(origin) and bool(failed))
    tasks = origin.call(lambda: [task.get_name() for task in asyncio.all_tasks()])
    names = sorted(name for name in tasks if name.startswith("flushes "))
    assert names == [f"flushes {number}" for number in range(SHARDS)]


TROUBLES: dict[str, Callable[[ClusterStorage, bool], None]] = {
    "objects-away": lambda s, on: setattr(s.flushes, "error", Away("objects") if on else None),
    "spoiled-checkpoint": lambda s, on: setattr(s.flushes, "is_spoiled", on),
    "short-journal": lambda s, on: setattr(s._journal, "is_short", on),
}


@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=TROUBLES)
def test_a_shard_that_another_node_could_not_open_stays_where_it_is(
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    trouble: Callable[[ClusterStorage, bool], None],
) -> None:
    monkeypatch.setattr(node, "BALANCE_SECS", 0.0)
    balance, looks = node.ClusterNode._balance, 0

    def count(self: node.ClusterNode, assignment: Assignment) -> None:
        nonlocal looks
        balance(self, assignment)
        looks += self.node_id == "n1" and len(self._nodes) == 2

    monkeypatch.setattr(node.ClusterNode, "_balance", count)
    one = start(1)
    wait_until(lambda: are_spread(one))
    tested = one.origin._node
    assert isinstance(tested, node.ClusterNode)
    storages = [owned.storage for owned in tested.holdings]
    for each in storages:
        trouble(each, True)
    two = start(2)
    wait_until(lambda: looks >= 3)
    assert owned(one) == set(range(SHARDS))
    for each in storages:
        trouble(each, False)
    wait_until(lambda: are_spread(one, two))


def test_limits_count_the_whole_cluster(start: Start) -> None:
    one, two = start(1), start(2)
    wait_until(lambda: are_spread(one, two))
    with one.client() as client:
        create_everywhere(client)
    here = one.call(lambda: one.origin._totals.streams)
    wait_until(lambda: two.call(lambda: two.origin._totals.others_streams) == here)
    assert here + two.call(lambda: two.origin._totals.streams) == SHARDS


def test_status_says_who_owns_what(start: Start) -> None:
    one, two = start(1), start(2)
    wait_until(lambda: are_spread(one, two))
    wait_until(lambda: len(json.loads(page(one, "/cluster/status")[1])["nodes"]) == 2)
    status = json.loads(page(one, "/cluster/status")[1])
    assert [each["id"] for each in status["nodes"]] == ["n1", "n2"]
    assert {each["state"] for each in status["shards"]} == {"open", "elsewhere"}
    assert sorted(shard for each in status["nodes"] for shard in each["shards"]) == [*range(SHARDS)]
    cluster_map = json.loads(page(two, "/cluster/map")[1])
    assert set(cluster_map["owners"]) == {"n1", "n2"} == set(cluster_map["nodes"])


def test_a_shard_whose_objects_are_damaged_is_offline_with_a_name(
    start: Start, tmp_path: Path
) -> None:
    one = start(1)
    wait_until(lambda: are_spread(one))
    with one.client() as client:
        create_everywhere(client)
    append_everywhere(one, b"data")
    one.stop()
    damaged = sorted((tmp_path / "objects").rglob("003/checkpoints/*"))
    for path in damaged:
        path.write_bytes(b"spoiled" + path.read_bytes())
    two = start(2)
    wait_until(lambda: len(owned(two)) == SHARDS - 1)
    reason = "003/checkpoints"
    wait_until(lambda: reason in page(two, "/cluster/status")[1])
    assert page(two, "/readyz/local")[0] == 200  # the other shards are served
    names = names_in_each_shard()
    with two.client() as client:
        assert client.read(names[3]).status == 503
        assert client.read(names[2]).body == b"data"
    assert any("offline" in error and reason in error for error in two.errors.found)


def test_a_shard_whose_journal_has_lost_its_end_is_offline_with_a_name(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "LAG_SECS", 0.2)
    one = start(1)
    wait_until(lambda: are_spread(one))
    with one.client() as client:
        create_everywhere(client)
    append_everywhere(one, b"data")
    tested = one.origin._node
    assert isinstance(tested, node.ClusterNode)
    one.run(tested._control.note_tails({3: 1000}))  # nothing less is all of it
    one.stop()
    two = start(2)
    wait_until(lambda: "and had batch 1000" in page(two, "/cluster/status")[1])
    names = names_in_each_shard()
    with two.client() as client:
        assert client.read(names[3]).status == 503
        assert client.read(names[2]).body == b"data"
    assert any("shard 3 is offline" in error for error in two.errors.found)


@pytest.mark.parametrize(
    ("cluster", "cold", "said"),
    [
        ({"shards": 4}, {}, "cluster.shards: the cluster was created with 6"),
        ({}, {"prefix": "other/"}, "cold.backend: the cluster uses fs:"),
    ],
)
def test_a_node_with_other_settings_is_refused(
    start: Start, tmp_path: Path, cluster: dict[str, object], cold: dict[str, str], said: str
) -> None:
    one = start(1)
    config = one.config
    other = make_config(
        tmp_path / "other",
        "cluster",
        server={"node_id": "n2"},
        cluster={
            "name": config.cluster.name,
            "nats_urls": config.cluster.nats_urls,
            "nats_monitor_urls": config.cluster.nats_monitor_urls,
            "replicas": 1,
            "shards": SHARDS,
            **cluster,
        },
        cold={"backend": "fs", "fs_path": config.cold.fs_path, **cold},
    )
    with pytest.raises(SettingsError, match=said):
        LocalOrigin(other).start()


def test_a_folder_is_refused_for_a_second_machine(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(1)
    monkeypatch.setattr("origin.cluster.joining.this_machine", lambda: "elsewhere")
    with pytest.raises(SettingsError, match="fs is a folder of one machine, but n1 is on another"):
        start(2)


def test_servers_that_do_not_sync_are_refused(start: Start, tmp_path: Path) -> None:
    with nats_servers(tmp_path, sync="2m") as nats:
        urls = {"nats_urls": tuple(nats.urls), "nats_monitor_urls": tuple(nats.monitor_urls)}
        with pytest.raises(SettingsError, match="does not sync always"):
            start(1, **urls)
        start(1, **urls, journal_sync="may-lose-on-power-cut").stop()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_node_stops_although_the_journal_does_not_answer(start: Start, tmp_path: Path) -> None:
    """nats-py forgets connections on which a server has not said hello."""
    with nats_servers(tmp_path) as nats:
        urls = {"nats_urls": tuple(nats.urls), "nats_monitor_urls": tuple(nats.monitor_urls)}
        node = start(1, **urls, answer_secs=0.5)
        wait_until(lambda: are_spread(node))
        with node.client() as client:
            client.create("s")
            nats.nodes[0].send(signal.SIGSTOP)
            try:
                assert client("POST", "s", KIND, b"1").status == 503
                node.stop()
            finally:
                nats.nodes[0].send(signal.SIGCONT)
    gc.collect()  # here, and not in another test


def test_objects_without_their_journals_are_not_taken_for_a_new_cluster(
    start: Start, tmp_path: Path
) -> None:
    first = start(1, flush_secs=0.1)
    wait_until(lambda: are_spread(first))
    with first.client() as client:
        client.create("s", body=b"precious")
    first.stop()
    (tmp_path / "nats").mkdir()
    with nats_servers(tmp_path / "nats") as nats:
        urls = {"nats_urls": tuple(nats.urls), "nats_monitor_urls": tuple(nats.monitor_urls)}
        with pytest.raises(SettingsError, match="NATS has no journals"):
            start(1, **urls)
    again = start(1)
    with again.client() as client:
        wait_until(lambda: client.read("s").body == b"precious")


def test_without_a_monitor_nothing_is_believed(start: Start) -> None:
    with pytest.raises(SettingsError, match="must name every NATS server"):
        start(1, nats_monitor_urls=())


def test_the_clock_of_a_lease_goes_on_while_nothing_runs() -> None:
    lease = Lease()
    lease.renew(clock() - 10, 9.9)
    assert not lease.is_valid
