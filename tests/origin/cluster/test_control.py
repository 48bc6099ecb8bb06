"""Leases and the assignment, on a real NATS server."""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Iterator
from itertools import count

import pytest
from msgspec.structs import replace

from origin.cluster.assignment import begin, take
from origin.cluster.control import Conflict, Control, Lease, NodeRecord, Replaced, this_machine
from origin.storage.cluster.jetstream import JetStream
from tests.helpers.nats import Nats, nats_servers

_names = count()


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nats]:
    with nats_servers(tmp_path_factory.mktemp("nats")) as servers:
        yield servers


@pytest.fixture
async def jetstream(nats: Nats) -> AsyncIterator[JetStream]:
    jetstream = await JetStream.connect(nats.urls)
    yield jetstream
    await jetstream.close()


@pytest.fixture
def cluster() -> str:
    return f"test-{next(_names)}"


async def joined(
    jetstream: JetStream, cluster: str, node: str = "n1", secs: float = 60.0
) -> Control:
    control = Control(jetstream, cluster, node, secs)
    await control.create(replicas=1)
    return control


def record(node: str, start: str = "first", **fields: object) -> NodeRecord:
    plain = NodeRecord(node, "http://127.0.0.1:1", os.getpid(), this_machine(), start)
    return replace(plain, **fields)


async def test_a_lease_holds_while_it_is_renewed(jetstream: JetStream, cluster: str) -> None:
    one, two = [await joined(jetstream, cluster, node) for node in ("n1", "n2")]
    await one.renew(record("n1"))
    await two.renew(record("n2"))
    await one.renew(record("n1", streams=7))
    found = await two.nodes()
    assert {id_: each.streams for id_, (_, each) in found.items()} == {"n1": 7, "n2": 0}


async def test_a_silent_node_is_gone_after_its_lease(jetstream: JetStream, cluster: str) -> None:
    control = await joined(jetstream, cluster, secs=1.0)
    await control.renew(record("n1"))
    async with asyncio.timeout(60):
        for _ in itertools.repeat(None):
            if not await control.nodes():
                return
            await asyncio.sleep(0.05)


async def test_a_resigned_node_is_gone_at_once(jetstream: JetStream, cluster: str) -> None:
    control = await joined(jetstream, cluster)
    await control.renew(record("n1"))
    await control.resign(record("n1"))
    assert await control.nodes() == {}
    again = await joined(jetstream, cluster)
    with pytest.raises(Conflict):
        await again.renew(record("n1", "second"))
    await again.renew(record("n1", "second"))
    assert list(await control.nodes()) == ["n1"]


async def test_a_late_farewell_does_not_end_the_lease_of_the_next_process(
    jetstream: JetStream, cluster: str
) -> None:
    """Else others would take over from a node that believes in its lease."""
    old, new = [await joined(jetstream, cluster) for _ in range(2)]
    await old.renew(record("n1", pid=2**22 - 1))
    with pytest.raises(Conflict):
        await new.renew(record("n1", "second"))
    await new.renew(record("n1", "second"))
    await old.resign(record("n1"))
    assert (await new.nodes())["n1"][1].start == "second"


async def test_a_restarted_node_takes_its_lease_back(jetstream: JetStream, cluster: str) -> None:
    """The process that held it is known to be gone."""
    old = await joined(jetstream, cluster)
    await old.renew(record("n1", pid=2**22 - 1))
    new = await joined(jetstream, cluster)
    with pytest.raises(Conflict):
        await new.renew(record("n1", "second"))
    await new.renew(record("n1", "second"))
    with pytest.raises(Replaced):
        await old.renew(record("n1"))


async def test_a_lease_of_another_machine_is_waited_for(jetstream: JetStream, cluster: str) -> None:
    old = await joined(jetstream, cluster)
    await old.renew(record("n1", machine="elsewhere"))
    new = await joined(jetstream, cluster)
    for _ in range(3):
        with pytest.raises(Conflict):
            await new.renew(record("n1", "second"))
    assert (await new.nodes())["n1"][1].start == "first"


async def test_a_renewal_whose_answer_was_lost(jetstream: JetStream, cluster: str) -> None:
    control = await joined(jetstream, cluster)
    await control.renew(record("n1"))
    control._revision = 0  # as if it had not heard
    with pytest.raises(Conflict):
        await control.renew(record("n1"))
    await control.renew(record("n1"))


async def test_of_two_changes_of_one_version_one_wins(jetstream: JetStream, cluster: str) -> None:
    control = await joined(jetstream, cluster)
    assert await control.assignment() is None
    version = await control.assign(0, begin("weir", "fs:/x", 4))
    with pytest.raises(Conflict):
        await control.assign(0, begin("weir", "fs:/y", 4))
    found = await control.assignment()
    assert found is not None and found[0] == version and found[1].cold == "fs:/x"
    changed = take(found[1], [0, 2], "n1")
    await control.assign(version, changed)
    with pytest.raises(Conflict):
        await control.assign(version, take(found[1], [1], "n2"))
    assert (await control.assignment() or (0, None))[1] == changed


async def test_how_far_journals_have_come_is_kept(jetstream: JetStream, cluster: str) -> None:
    one, two = [await joined(jetstream, cluster, node) for node in ("n1", "n2")]
    assert await one.noted_tail(1) == 0
    await one.note_tails({1: 10, 2: 20})
    await two.note_tails({2: 25})
    again = await joined(jetstream, cluster, "n1")  # after a restart, with other shards
    await again.note_tails({3: 30})
    await again.note_tails({1: 9})
    assert [await two.noted_tail(shard) for shard in range(5)] == [0, 10, 25, 30, 0]


async def test_a_note_is_not_taken_back_by_a_process_that_comes_late(
    jetstream: JetStream, cluster: str
) -> None:
    late, now = [await joined(jetstream, cluster) for _ in range(2)]
    await late.note_tails({1: 10})
    await now.note_tails({1: 50})
    for _ in range(2):  # the first one finds out
        await late.note_tails({1: 11, 2: 7})
    assert [await now.noted_tail(shard) for shard in (1, 2)] == [50, 7]


async def test_nothing_is_written_while_nothing_is_new(jetstream: JetStream, cluster: str) -> None:
    control = await joined(jetstream, cluster)
    await control.note_tails({1: 10})
    before = await jetstream.state(f"WEIR-{cluster}")
    await control.note_tails({1: 10})
    assert await jetstream.state(f"WEIR-{cluster}") == before


async def test_records_of_an_earlier_version_get_what_is_new(
    jetstream: JetStream, cluster: str
) -> None:
    await jetstream.ensure_stream(
        f"WEIR-{cluster}",
        subjects=[f"weir.{cluster}.node.*", f"weir.{cluster}.map"],
        max_msgs_per_subject=1,
        allow_msg_ttl=True,
    )
    control = await joined(jetstream, cluster)
    await control.note_tails({1: 10})
    assert await control.noted_tail(1) == 10


def test_a_lease_counts_from_before_it_was_sent() -> None:
    now = 100.0
    lease = Lease(lambda: now)
    assert not lease.is_valid
    lease.renew(100.0, 10.0)
    now = 109.9
    assert lease.is_valid and round(lease.age_secs, 6) == 9.9
    now = 110.0
    assert not lease.is_valid
    lease.renew(110.0, 10.0)
    lease.end()
    assert not lease.is_valid


async def test_a_farewell_comes_after_a_renewal_whose_answer_was_lost(
    jetstream: JetStream, cluster: str
) -> None:
    one, two = [await joined(jetstream, cluster, node) for node in ("n1", "n2")]
    await one.renew(record("n1"))
    before = one._revision
    await one.renew(record("n1"))
    one._revision = before
    await one.resign(record("n1"))
    assert await two.nodes() == {}
