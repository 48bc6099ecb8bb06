"""The journal of a shard on a real NATS server: one owner, and nothing lost or let in."""

import asyncio

import msgspec
import pytest
from nats.aio.msg import Msg

from origin.storage.base import DamagedData
from origin.storage.cluster import jetstream as jetstream_module
from origin.storage.cluster import journal as journal_module
from origin.storage.cluster.envelope import Batch, Kind, decode_epoch
from origin.storage.cluster.jetstream import Away, JetStream, Refused, StreamState
from origin.storage.cluster.journal import Fenced, Journal, JournalLost, stored_bytes
from tests.origin.storage.driver import until

MIB = 1024 * 1024


async def opened(jetstream: JetStream, cluster: str, epoch: int) -> Journal:
    if epoch == 1:
        await Journal(jetstream, cluster, 5, epoch=0).found(replicas=1, max_bytes=64 * MIB)
    journal = Journal(jetstream, cluster, 5, epoch=epoch)
    await journal.begin_epoch(f"n{epoch}")
    return journal


async def contents(journal: Journal) -> list[Batch]:
    return [batch async for _, batch in journal.replay(journal.seq)]


async def records(journal: Journal) -> list[bytes]:
    return [batch.payload for batch in await contents(journal) if batch.kind is Kind.RECORDS]


async def test_batches_are_replayed_in_order(jetstream: JetStream, cluster: str) -> None:
    first = await opened(jetstream, cluster, 1)
    for number in range(20):
        await first.publish(Kind.RECORDS, b"%d" % number)
    second = await opened(jetstream, cluster, 2)
    found = await contents(second)
    assert [batch.number for batch in found] == list(range(1, 24))
    assert await records(second) == [b"%d" % number for number in range(20)]
    assert decode_epoch(found[-1].payload).node == "n2"


async def test_a_large_batch_travels_in_parts(jetstream: JetStream, cluster: str) -> None:
    journal = await opened(jetstream, cluster, 1)
    large = bytes(range(256)) * (9 * MIB // 256)
    await journal.publish(Kind.RECORDS, large)
    await journal.publish(Kind.RECORDS, b"small")
    assert journal.seq > 9
    assert await records(await opened(jetstream, cluster, 2)) == [large, b"small"]


async def test_a_new_epoch_fences_the_old_owner(jetstream: JetStream, cluster: str) -> None:
    old = await opened(jetstream, cluster, 1)
    await old.publish(Kind.RECORDS, b"kept")
    new = await opened(jetstream, cluster, 2)
    with pytest.raises(Fenced):
        await old.publish(Kind.RECORDS, b"late")
    await new.publish(Kind.RECORDS, b"mine")
    assert await records(await opened(jetstream, cluster, 3)) == [b"kept", b"mine"]


async def test_an_old_epoch_cannot_come_back(jetstream: JetStream, cluster: str) -> None:
    await opened(jetstream, cluster, 1)
    await opened(jetstream, cluster, 2)
    with pytest.raises(Fenced, match="epoch 2"):
        await opened(jetstream, cluster, 2)


async def test_fenced_between_two_parts(
    jetstream: JetStream, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the old owner left of its batch never counts."""
    monkeypatch.setattr(journal_module, "MESSAGE_BYTES", 1000)
    old = await opened(jetstream, cluster, 1)
    publish, sent = jetstream.publish, 0

    async def publish_twice(subject: str, data: bytes, headers: dict[str, str]) -> int:
        nonlocal sent
        sent += 1
        if sent == 3:
            await opened_beside(publish, jetstream, cluster)
        return await publish(subject, data, headers)

    async def opened_beside(plain: object, jetstream: JetStream, cluster: str) -> None:
        monkeypatch.setattr(jetstream, "publish", plain)
        await opened(jetstream, cluster, 2)

    monkeypatch.setattr(jetstream, "publish", publish_twice)
    with pytest.raises(Fenced):
        await old.publish(Kind.RECORDS, b"x" * 5000)
    new = await opened(jetstream, cluster, 3)
    await new.publish(Kind.RECORDS, b"after")
    assert await records(await opened(jetstream, cluster, 4)) == [b"after"]


async def test_an_unanswered_publish_is_sent_again_and_stored_once(
    jetstream: JetStream, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = await opened(jetstream, cluster, 1)
    publish, tries = jetstream.publish, 0

    async def answer_late(subject: str, data: bytes, headers: dict[str, str]) -> int:
        nonlocal tries
        tries += 1
        seq = await publish(subject, data, headers)
        if tries == 1:
            raise Away("lost on the way")
        return seq

    monkeypatch.setattr(jetstream, "publish", answer_late)
    await journal.publish(Kind.RECORDS, b"once")
    assert tries == 2
    assert await records(journal) == [b"once"]


@pytest.mark.parametrize("code", [10158, 10164, 10167])
async def test_a_publish_whose_first_try_has_no_outcome_is_sent_again(
    jetstream: JetStream, cluster: str, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """As while the servers have no quorum."""
    journal = await opened(jetstream, cluster, 1)
    subject_of_it, answers = journal._subject, [code, code]
    send = jetstream._send

    async def answer_busy(subject: str, data: bytes, headers: dict[str, str] | None) -> Msg:
        if subject != subject_of_it or not answers:
            return await send(subject, data, headers)
        error = {"code": 400, "err_code": answers.pop(), "description": "not yet"}
        return Msg(jetstream._client, data=msgspec.json.encode({"error": error}))

    monkeypatch.setattr(jetstream, "_send", answer_busy)
    await journal.publish(Kind.RECORDS, b"once")
    assert await records(journal) == [b"once"]


async def test_stored_but_refused_as_a_repetition_counts(
    jetstream: JetStream, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an outage longer than the servers remember message ids."""
    journal = await opened(jetstream, cluster, 1)
    publish, tries = jetstream.publish, 0

    async def forget_id(subject: str, data: bytes, headers: dict[str, str]) -> int:
        nonlocal tries
        tries += 1
        if tries == 1:
            await publish(subject, data, headers)
            raise Away("lost on the way")
        return await publish(subject, data, {**headers, "Nats-Msg-Id": f"other-{tries}"})

    monkeypatch.setattr(jetstream, "publish", forget_id)
    await journal.publish(Kind.RECORDS, b"once")
    await journal.publish(Kind.RECORDS, b"twice")
    assert await records(journal) == [b"once", b"twice"]


async def test_only_one_message_is_in_flight(
    jetstream: JetStream, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = await opened(jetstream, cluster, 1)
    publish, flying, most = jetstream.publish, 0, 0

    async def counted(subject: str, data: bytes, headers: dict[str, str]) -> int:
        nonlocal flying, most
        flying += 1
        most = max(most, flying)
        try:
            return await publish(subject, data, headers)
        finally:
            flying -= 1

    monkeypatch.setattr(jetstream, "publish", counted)
    await asyncio.gather(*(journal.publish(Kind.RECORDS, b"%d" % n) for n in range(10)))
    assert most == 1
    assert len(await records(journal)) == 10


async def test_the_journal_is_purged_below_a_checkpoint(jetstream: JetStream, cluster: str) -> None:
    first = await opened(jetstream, cluster, 1)
    for number in range(5):
        await first.publish(Kind.RECORDS, b"%d" % number)
    await first.publish(Kind.CHECKPOINT, b"pointer")
    await first.purge(first.seq - 1)
    second = await opened(jetstream, cluster, 2)
    assert await second.last_checkpoint() == (8, b"pointer")
    assert await records(second) == [b"4"]
    assert [batch.number for batch in await contents(second)] == [7, 8, 9]


async def test_a_journal_that_was_removed_is_not_taken_for_a_new_one(
    jetstream: JetStream, cluster: str
) -> None:
    journal = await opened(jetstream, cluster, 1)
    await journal.publish(Kind.RECORDS, b"acknowledged")
    await jetstream._ask(f"STREAM.DELETE.{journal.stream}", {})
    with pytest.raises(JournalLost, match="does not exist"):
        await opened(jetstream, cluster, 2)


async def test_a_journal_that_was_emptied_is_noticed(jetstream: JetStream, cluster: str) -> None:
    journal = await opened(jetstream, cluster, 1)
    await journal.publish(Kind.RECORDS, b"acknowledged")
    await journal.purge(journal.seq + 1)
    with pytest.raises(JournalLost, match="emptied"):
        await opened(jetstream, cluster, 2)


async def cut_end(jetstream: JetStream, journal: Journal, keep: int) -> None:
    """As NATS does when it starts and finds a damaged message: the rest is not there any more."""
    kept = (await jetstream.read_from(journal.stream, 1, MIB))[:keep]
    config = (await jetstream._ask(f"STREAM.INFO.{journal.stream}", {})).config
    await jetstream._ask(f"STREAM.DELETE.{journal.stream}", {})
    await jetstream._ask(f"STREAM.CREATE.{journal.stream}", config)
    for message in kept:
        await jetstream.publish(journal._subject, message.data, {})


@pytest.mark.parametrize("missing", [0, 2])
async def test_a_journal_without_its_end_is_not_written_to(
    jetstream: JetStream, cluster: str, monkeypatch: pytest.MonkeyPatch, missing: int
) -> None:
    """By itself it looks whole. What else knows its last batch notices."""
    monkeypatch.setattr(journal_module, "LAG_SECS", 0.3)
    journal = await opened(jetstream, cluster, 1)
    for number in range(5):
        await journal.publish(Kind.RECORDS, b"%d" % number)
    await cut_end(jetstream, journal, journal.seq - missing)
    last = journal.next_number - 1
    new = Journal(jetstream, cluster, 5, epoch=2, least_number=last)
    if not missing:
        await new.begin_epoch("n2")
        assert len(await records(new)) == 5
        return
    with pytest.raises(JournalLost, match=f"ends at batch {last - missing}, and had batch {last}"):
        await new.begin_epoch("n2")
    state = await jetstream.state(journal.stream)
    assert state is not None and state.last_seq == journal.seq - missing
    await Journal(jetstream, cluster, 5, epoch=3).begin_epoch("n3")  # that does not know


async def test_a_leader_that_is_behind_for_a_moment_has_lost_nothing(
    jetstream: JetStream, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = await opened(jetstream, cluster, 1)
    before = await jetstream.state(journal.stream)
    await journal.publish(Kind.RECORDS, b"news")
    states, now = [before], jetstream.state

    async def state(stream: str) -> StreamState | None:
        return states.pop() if states else await now(stream)

    monkeypatch.setattr(jetstream, "state", state)
    last = journal.next_number - 1
    await Journal(jetstream, cluster, 5, epoch=2, least_number=last).begin_epoch("n2")


async def test_an_owner_whose_journal_has_lost_its_end_says_so_and_stays(
    jetstream: JetStream,
    cluster: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(journal_module, "LAG_SECS", 0.3)
    journal = await opened(jetstream, cluster, 1)
    for number in range(5):
        await journal.publish(Kind.RECORDS, b"%d" % number)
    await cut_end(jetstream, journal, 4)
    late = asyncio.create_task(journal.publish(Kind.RECORDS, b"late"))
    await until(lambda: f"{journal.stream} ends at message 4, and had {journal.seq}" in caplog.text)
    assert not late.done()
    late.cancel()


async def test_a_foreign_message_in_the_journal_is_damage(
    jetstream: JetStream, cluster: str
) -> None:
    journal = await opened(jetstream, cluster, 1)
    await journal.publish(Kind.RECORDS, b"ours")
    await jetstream.publish(f"weir.{cluster}.journal.005", b"who knows", {})
    with pytest.raises(Fenced):
        await journal.publish(Kind.RECORDS, b"more")
    with pytest.raises(DamagedData, match="message 4 is damaged"):
        await opened(jetstream, cluster, 2)


async def test_a_stream_that_does_not_exist_is_refused(jetstream: JetStream) -> None:
    assert await jetstream.state("WEIR-nowhere") is None
    with pytest.raises((Refused, Away)):
        await jetstream.publish("weir.nowhere.journal.000", b"x", {})


async def test_a_journal_whose_first_opening_failed_is_opened_by_the_next(
    jetstream: JetStream, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The assignment has given epoch 1 away; nothing of it came here."""
    await Journal(jetstream, cluster, 5, epoch=0).found(replicas=1, max_bytes=MIB)
    second = await opened(jetstream, cluster, 2)
    await second.publish(Kind.RECORDS, b"mine")
    assert await records(second) == [b"mine"]


async def test_founding_a_journal_again_changes_nothing(jetstream: JetStream, cluster: str) -> None:
    first = await opened(jetstream, cluster, 1)
    await first.publish(Kind.RECORDS, b"kept")
    await Journal(jetstream, cluster, 5, epoch=0).found(replicas=1, max_bytes=MIB)
    await first.publish(Kind.RECORDS, b"more")
    assert await records(first) == [b"kept", b"more"]


async def test_a_journal_gets_more_room_when_the_setting_was_raised(
    jetstream: JetStream, cluster: str, caplog: pytest.LogCaptureFixture
) -> None:
    await Journal(jetstream, cluster, 5, epoch=0).found(replicas=1, max_bytes=MIB)
    first = await opened(jetstream, cluster, 2)
    await first.publish(Kind.RECORDS, b"x" * (MIB - 2000))
    late = asyncio.create_task(first.publish(Kind.RECORDS, b"y" * 5000))
    await until(lambda: "maximum bytes exceeded" in caplog.text)  # it waits for room
    await first.make_room(2 * MIB)
    await first.make_room(MIB)  # never less
    await asyncio.wait_for(late, 30)
    assert [len(data) for data in await records(first)] == [MIB - 2000, 5000]


async def test_a_journal_keeps_its_room_if_the_servers_have_no_more(
    jetstream: JetStream, cluster: str
) -> None:
    await Journal(jetstream, cluster, 5, epoch=0).found(replicas=1, max_bytes=MIB)
    journal = await opened(jetstream, cluster, 2)
    assert await journal.make_room(1 << 50) == MIB
    assert await journal.make_room(2 * MIB) == 2 * MIB


async def test_a_full_journal_is_not_taken_over_but_does_not_hang(
    jetstream: JetStream, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await Journal(jetstream, cluster, 5, epoch=0).found(replicas=1, max_bytes=MIB)
    first = await opened(jetstream, cluster, 2)
    await first.publish(Kind.RECORDS, b"x" * (MIB - 2000))

    async def room() -> int:
        state = await jetstream.state(first.stream)
        assert state is not None
        return MIB - state.bytes

    left, cost = await room(), 0
    while left >= cost:  # until not even an empty one fits
        await first.publish(Kind.RECORDS, b"")
        left, cost = await room(), left - await room()
    monkeypatch.setattr(journal_module, "EPOCH_SECS", 0.3)
    with pytest.raises(Away, match="no epoch record"):
        await opened(jetstream, cluster, 3)
    monkeypatch.undo()
    await first.make_room(2 * MIB)
    await opened(jetstream, cluster, 4)


async def test_what_is_counted_is_not_less_than_what_is_stored(
    jetstream: JetStream, cluster: str
) -> None:
    """Room must run out by our count first: NATS would take no checkpoint either."""
    journal = await opened(jetstream, cluster, 1)
    before = await jetstream.state(journal.stream)
    counted = 0
    for size in (20, 20, 20, 500, 3 * MIB):
        await journal.publish(Kind.RECORDS, b"z" * size)
        counted += stored_bytes(size)
    after = await jetstream.state(journal.stream)
    assert before is not None and after is not None
    assert counted / 1.2 < after.bytes - before.bytes <= counted


async def test_a_connection_that_was_given_up_can_be_closed(
    jetstream: JetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = jetstream._client.close

    async def fail() -> None:
        await close()
        raise RuntimeError("the handler is closed")

    monkeypatch.setattr(jetstream._client, "close", fail)
    await jetstream.close()


async def test_a_connection_that_was_closed_for_good_is_made_again(
    jetstream: JetStream, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a password was changed at the servers, and changed back."""
    monkeypatch.setattr(jetstream_module, "REVIVE_SECS", 0.01)
    journal = await opened(jetstream, cluster, 1)
    heard = asyncio.Event()
    await jetstream.on_hint("weir.hint", heard.set)
    await jetstream._client.close()
    await journal.publish(Kind.RECORDS, b"after")
    assert await records(journal) == [b"after"]
    while not heard.is_set():
        await jetstream.hint("weir.hint")
        await asyncio.sleep(0.01)
