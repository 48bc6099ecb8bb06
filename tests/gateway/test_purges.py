"""One owner of every purge: what each reaches, and what the origin's answers set off."""

from collections.abc import AsyncIterator

import pytest

from gateway.notices import Notice
from gateway.streams import News
from tests.helpers.offsets import nameless
from tests.helpers.parts import DictShared, MakeParts, Parts, chunk, quiet


class KeptPurges:
    """A holder that notes what it is told."""

    def __init__(self, parts: Parts) -> None:
        self.told: list[tuple[str, ...]] = []
        parts.purges.register(self)

    def forget(self, stream: str) -> None:
        self.told.append(("forget", stream))

    def trim(self, stream: str, earliest: str) -> None:
        self.told.append(("trim", stream, earliest))

    def clear(self) -> None:
        self.told.append(("clear",))


@pytest.fixture
async def filled(make: MakeParts) -> AsyncIterator[Parts]:
    parts = make(DictShared())
    await parts.fill("a", chunk(0, 5), b"hello")
    await parts.fill(f"a?offset={nameless(5)}", chunk(5, 9), b"more")
    await parts.fill("b", chunk(0, 5), b"other")
    yield parts


def stored(parts: Parts) -> set[tuple[str, str]]:
    return {
        key for key in (("a", "-1"), ("a", nameless(5)), ("b", "-1")) if parts.cache.fresh(*key)
    }


async def test_forget_reaches_everybody_who_holds_something_of_one_stream(filled: Parts) -> None:
    holder = KeptPurges(filled)
    filled.purges.forget("a")
    assert stored(filled) == {("b", "-1")} and holder.told == [("forget", "a")]
    assert filled.streams.peek("a") is None


async def test_trim_leaves_what_a_snapshot_does_not_replace(filled: Parts) -> None:
    holder = KeptPurges(filled)
    filled.purges.trim("a", nameless(5))
    assert stored(filled) == {("a", nameless(5)), ("b", "-1")}
    assert holder.told == [("trim", "a", nameless(5))]


async def test_what_begins_nobody_knows_where_is_trimmed_whole_and_not_learned(
    filled: Parts,
) -> None:
    holder = KeptPurges(filled)
    filled.streams.learn_earliest("a", nameless(5))
    filled.purges.trim("a", "")
    assert stored(filled) == {("b", "-1")} and holder.told == [("trim", "a", "")]
    assert filled.streams.get("a").earliest == nameless(5)


async def test_clear_drops_everything(filled: Parts) -> None:
    holder = KeptPurges(filled)
    filled.purges.clear()
    assert stored(filled) == set() and holder.told == [("clear",)]


async def test_what_may_be_gone_is_not_served_and_ends_no_reader(filled: Parts) -> None:
    holder = KeptPurges(filled)
    assert filled.purges.doubt("a")
    assert stored(filled) == {("b", "-1")} and holder.told == []
    assert not filled.purges.doubt("never seen")


async def test_a_purge_is_everywhere_before_it_returns(filled: Parts) -> None:
    holder = KeptPurges(filled)
    await filled.purges.publish(Notice("purge", "a", "deleted"))
    assert holder.told == [("forget", "a")] and filled.notices.counts.published == 1
    assert filled.cache.fresh("a", "-1") is None


async def test_what_everybody_finds_out_is_acted_on_once(filled: Parts) -> None:
    """Gateways that see a new incarnation all tell, and must not purge the new stream again."""
    holder = KeptPurges(filled)
    known = filled.streams.get("a").incarnation
    filled.purges.act(Notice("purge", "a", "changed", incarnation=known))
    assert holder.told == []
    filled.purges.act(Notice("purge", "a", "changed", incarnation="0123456789abcdef"))
    assert holder.told == [("forget", "a")]


async def test_another_incarnation_purges_here_and_is_told(filled: Parts) -> None:
    holder = KeptPurges(filled)
    departure = next(filled.streams.stamps)
    assert filled.purges.learn("a", "0123456789abcdef", departure) is News.REPLACED
    assert holder.told == [("forget", "a")]
    assert filled.streams.get("a").incarnation == "0123456789abcdef"
    await quiet()
    assert filled.notices.counts.published == 1


async def test_the_second_level_is_not_read_until_it_is_purged(make: MakeParts) -> None:
    shared = DictShared()
    parts = make(shared)
    shared.may_purge.clear()
    parts.purges.distrust("a")
    await quiet()
    assert parts.purges.is_distrusted("a")
    shared.may_purge.set()
    await quiet()
    assert not parts.purges.is_distrusted("a")
