"""Who waits where: every event of a tail, and random histories of many readers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.entries import Entry, make_entry
from gateway.hub import NOT_STORED
from gateway.rules.tails import (
    BEYOND,
    TRANSIT_SECS,
    Action,
    BeginAnew,
    CatchUp,
    Deliver,
    End,
    M,
    PassBy,
    Refusal,
    Refuse,
    Seats,
    State,
    Tail,
    Tails,
    Tell,
)
from gateway.rules.window import Windows
from protocol.heads import parse_head
from protocol.offsets import format_offset, position_of
from protocol.replies import Reply
from tests.helpers.offsets import nameless
from tests.helpers.parts import chunk

AT = nameless
AWAY = Refusal(Reply(502, ()), "origin-unreachable")
Names = Tails[str, str]


def make_tails() -> Names:
    return Tails(Windows(1 << 20, 1 << 20), by_token=False)


def entry(offset: str, end: str, *, closed: bool = False, body: bytes = b"news") -> Entry:
    headers = chunk(0, 0, tail=True, closed=closed) | {"stream-next-offset": end}
    head = parse_head(headers)
    return make_entry("a", offset, head, body, policy=NOT_STORED, now=0, public=False)


def seats(of: Seats[M]) -> dict[M, str]:
    return {reader: offset for offset in of.offsets for reader in of.at(offset)}


# -- one event -----------------------------------------------------------------------------------


@pytest.fixture
def tails() -> Names:
    return make_tails()


@pytest.fixture
def tail(tails: Names) -> Tail[str, str]:
    """At 5, the origin asked. A long-poll and an SSE reader stand there, and two more at 12."""
    tail = tails.open("a", "a")
    assert tail.wait("poll", AT(5), 0.0, at_end=False)
    assert tail.attach("reader", AT(5))
    assert tail.wait("far poll", AT(12), 0.0, at_end=True)
    assert tail.attach("far reader", AT(12))
    assert tail.next_ask() == AT(5)
    tail.departed()
    return tail


FAR = ["far poll"], ["far reader"]
NEWS, MUCH = entry(AT(5), AT(9)), entry(AT(5), AT(15))
LAST, ALL = entry(AT(5), AT(9), closed=True), entry(AT(5), AT(12), closed=True)
EMPTY, CLOSED = entry(AT(5), AT(5), body=b""), entry(AT(5), AT(5), closed=True, body=b"")
Event = Callable[[Tail[str, str]], list[Action[str, str]]]

GO_ON: dict[str, tuple[Event, list[Action[str, str]], dict[str, str]]] = {
    "data": (
        lambda tail: tail.took(NEWS, ""),
        [Deliver(NEWS, ["poll"], ["reader"]), CatchUp([], [])],
        {"far poll": AT(12), "reader": AT(9), "far reader": AT(12)},
    ),
    "data that goes past some": (
        lambda tail: tail.took(MUCH, ""),
        [Deliver(MUCH, ["poll"], ["reader"]), CatchUp(*FAR)],
        {"reader": AT(15)},
    ),
    "data without bytes": (
        lambda tail: tail.took(EMPTY, ""),
        [Deliver(EMPTY, ["poll"], ["reader"]), CatchUp([], [])],
        {"far poll": AT(12), "reader": AT(5), "far reader": AT(12)},
    ),
    "nothing new": (
        lambda tail: tail.nothing_new(AT(5), 0.0),
        [Tell(["poll"], AT(5), closed=False)],
        {"far poll": AT(12), "reader": AT(5), "far reader": AT(12)},
    ),
    "a failure": (
        lambda tail: tail.failed(AWAY),
        [Refuse(["poll", "far poll"], AWAY)],
        {"reader": AT(5), "far reader": AT(12)},
    ),
    "too many failures": (
        lambda tail: tail.given_up(),
        [End(["reader", "far reader"], "upstream-error")],
        {"poll": AT(5), "far poll": AT(12)},
    ),
    "a reader at the same end": (
        lambda tail: tail.make_way(AT(5), insists=False),
        [],
        {"poll": AT(5), "far poll": AT(12), "reader": AT(5), "far reader": AT(12)},
    ),
}

THE_END: dict[str, tuple[Event, list[Action[str, str]]]] = {
    "the last data": (
        lambda tail: tail.took(LAST, ""),
        [
            Deliver(LAST, ["poll"], ["reader"]),
            Tell([], AT(9), closed=True),
            End(["reader"], "closed"),
            CatchUp(*FAR),
        ],
    ),
    "the last data for all": (
        lambda tail: tail.took(ALL, ""),
        [
            Deliver(ALL, ["poll"], ["reader"]),
            Tell(["far poll"], AT(12), closed=True),
            End(["reader", "far reader"], "closed"),
            CatchUp([], []),
        ],
    ),
    "closed": (
        lambda tail: tail.closed(CLOSED),
        [
            Tell(["poll"], AT(5), closed=True),
            Deliver(CLOSED, [], ["reader"]),
            Tell([], AT(5), closed=True),
            End(["reader"], "closed"),
            CatchUp(*FAR),
        ],
    ),
    "refused": (
        lambda tail: tail.refused(AWAY, "trimmed"),
        [Refuse(["poll"], AWAY), End(["reader"], "trimmed"), BeginAnew(*FAR)],
    ),
    "too large": (
        lambda tail: tail.too_large(),
        [PassBy(["poll"]), End(["reader"], "upstream-error"), BeginAnew(*FAR)],
    ),
    "gone": (
        lambda tail: tail.gone(AWAY, "deleted"),
        [Refuse(["poll", "far poll"], AWAY), End(["reader", "far reader"], "deleted")],
    ),
    "purged": (
        lambda tail: tail.purged(),
        [End(["reader", "far reader"], "deleted"), BeginAnew(["poll", "far poll"], [])],
    ),
    "stopped": (
        lambda tail: tail.stop(),
        [Tell(["poll", "far poll"], None, closed=False), End(["reader", "far reader"], "drained")],
    ),
    "a reader who insists on an earlier end": (
        lambda tail: tail.make_way(AT(3), insists=True),
        [
            Refuse(["poll", "far poll"], BEYOND),
            End(["reader", "far reader"], "upstream-error"),
            BeginAnew([], []),
        ],
    ),
    "a reader who insists on an end between": (
        lambda tail: tail.make_way(AT(7), insists=True),
        [
            Refuse(["far poll"], BEYOND),
            End(["far reader"], "upstream-error"),
            BeginAnew(["poll"], ["reader"]),
        ],
    ),
    "a reader at an end that cannot be compared": (
        lambda tail: tail.make_way(format_offset(7, 5), insists=False),
        [BeginAnew(["poll", "far poll"], ["reader", "far reader"])],
    ),
}


@pytest.mark.parametrize("name", GO_ON)
def test_an_event_that_a_tail_outlasts(name: str, tails: Names, tail: Tail[str, str]) -> None:
    event, actions, left = GO_ON[name]
    tail.answered()
    assert event(tail) == actions
    assert seats(tail.polls) | seats(tail.readers) == left
    assert tail.state is State.ASKING and list(tails) == [tail]


@pytest.mark.parametrize("name", THE_END)
def test_an_event_that_ends_a_tail(name: str, tails: Names, tail: Tail[str, str]) -> None:
    event, actions = THE_END[name]
    assert event(tail) == actions
    assert tail.state is State.ENDED and not tail.is_wanted and tail.next_ask() is None
    assert len(tails) == 0 and tails.windows.bytes == 0
    assert tails.open("a", "a") is not tail


def test_a_tail_is_known_to_be_up_to_date_only_while_the_origin_has_the_question(
    tails: Names, tail: Tail[str, str]
) -> None:
    assert tails.followed_to("a") == AT(5) and tails.followed_to("b") is None
    tail.answered()
    assert tail.state is State.ASKING and tails.followed_to("a") is None


@pytest.mark.parametrize(
    ("asks", "waited_s", "is_told"),
    [(1, 0.0, True), (0, TRANSIT_SECS / 2, False), (0, TRANSIT_SECS, True)],
)
def test_nothing_new_is_told_to_those_who_came_before_it(
    tails: Names, asks: int, waited_s: float, is_told: bool
) -> None:
    tail = tails.open("a", "a")
    tail.attach("reader", AT(5))
    tail.next_ask()
    tail.wait("poll", AT(5), 1.0, at_end=False)
    for _ in range(asks):
        tail.next_ask()
    assert tail.nothing_new(AT(5), 1.0 + waited_s) == [
        Tell(["poll"] if is_told else [], AT(5), closed=False)
    ]


def test_who_is_elsewhere_has_no_seat(tail: Tail[str, str]) -> None:
    assert not tail.wait("behind", AT(3), 0.0, at_end=True)
    assert not tail.wait("ahead of what he knows", AT(7), 0.0, at_end=False)
    assert not tail.attach("behind", AT(3))
    assert not tail.attach("of another stream", format_offset(7, 9))
    assert len(tail.polls) == len(tail.readers) == 2


def test_a_tail_without_readers_rests_where_it_is_and_ends(
    tails: Names, tail: Tail[str, str]
) -> None:
    tail.took(NEWS, "")
    assert tail.leave("far poll") and tail.detach("reader") and tail.detach("far reader")
    assert not tail.leave("far poll"), "he has left already"
    assert tail.next_ask() is None and tails.get("a") is tail
    assert tail.position == AT(9) and tail.window.at(AT(5)) is NEWS
    tail.rested()
    assert tail.state is State.ENDED and len(tails) == 0 and tails.windows.bytes == 0


@pytest.mark.parametrize(("offset", "is_kept"), [(AT(9), True), (AT(3), False)])
def test_the_next_reader_says_where_a_resting_tail_goes_on(
    tails: Names, tail: Tail[str, str], offset: str, is_kept: bool
) -> None:
    """What it has kept is of use only from where it stopped."""
    tail.took(MUCH, "")
    tail.took(entry(AT(15), AT(9)), "")
    tail.given_up()
    tail.next_ask()
    assert tail.wait("late", offset, 0.0, at_end=False)
    assert tail.next_ask() == offset and (tail.window.at(AT(5)) is MUCH) is is_kept
    tail.rested()
    assert tail.state is State.ASKING, "somebody waits"


@pytest.mark.parametrize(("earliest", "is_kept"), [("", True), (AT(5), True), (AT(6), False)])
def test_what_a_snapshot_replaced_meanwhile_is_not_kept(
    tail: Tail[str, str], earliest: str, is_kept: bool
) -> None:
    tail.took(NEWS, earliest)
    assert (tail.window.at(AT(5)) is NEWS) is is_kept


def test_tails_of_a_stream_are_kept_apart_by_token() -> None:
    tails: Names = Tails(Windows(1 << 20, 1 << 20), by_token=True)
    mine, yours = tails.open("a\0mine", "a"), tails.open("a\0yours", "a")
    tails.open("b\0mine", "b")
    assert tails.of("a") == [mine, yours] and tails.open("a\0mine", "a") is mine


# -- random histories ----------------------------------------------------------------------------


@dataclass(eq=False)
class Reader:
    """`place` says where he is: at the tail, on a catch-up read, or gone."""

    stays: bool
    offset: str
    place: str = "searching"
    in_vain: int = 0
    answers: int = 0
    seen: list[tuple[str, str]] = field(default_factory=list)

    def see(self, start: str, end: str) -> None:
        assert start == self.offset, "data begins where he stands"
        self.seen.append((start, end))
        self.offset = end
        if not self.stays:
            self.finish()

    def finish(self) -> None:
        """The only answer of a long-poll; the end of an event stream."""
        assert self.place != "gone", "nobody is answered twice"
        self.place = "gone"
        self.answers += 1


def named(position: int) -> str:
    return format_offset(7, position)


STEPS = st.integers(1, 3)
BEHIND = st.sampled_from([0, 0, 0, 1, 4, -1, -2, -4])  # the stream's end
RARELY = st.integers(0, 7).map(lambda one: one == 7)
ReaderEvent = Callable[[Tail[Reader, Reader]], list[Action[Reader, Reader]]]
BAD_ANSWERS: list[ReaderEvent] = [
    lambda tail: tail.failed(AWAY),
    lambda tail: tail.gone(AWAY, "deleted"),
    lambda tail: tail.too_large(),
]


class Histories(RuleBasedStateMachine):
    """A stream of 7 whose offsets are named by its origin; some readers come with old ones. The
    machine does what a driver does: it asks while it is told to, and carries every action out."""

    def __init__(self) -> None:
        super().__init__()
        self.tails: Tails[Reader, Reader] = Tails(Windows(1 << 16, 1 << 16), by_token=False)
        self.readers: list[Reader] = []
        self.end = 5
        self.now = 0.0
        self.asked: str | None = None  # at what offset, while a question is out
        self.asks_of: Tail[Reader, Reader] | None = None

    # -- the driver

    @property
    def tail(self) -> Tail[Reader, Reader] | None:
        return self.tails.get("a")

    def among(self, place: str) -> list[Reader]:
        return [reader for reader in self.readers if reader.place == place]

    def seat(self, reader: Reader, *, at_end: bool) -> bool:
        tail = self.tails.open("a", "a")
        if reader.stays:
            is_seated = tail.attach(reader, reader.offset)
        else:
            is_seated = tail.wait(reader, reader.offset, self.now, at_end=at_end)
        if is_seated:
            reader.place = "tail"
        return is_seated

    def perform(self, actions: list[Action[Reader, Reader]]) -> None:
        shown: set[Reader] = set()
        for action in actions:
            concerned = [*getattr(action, "polls", ()), *getattr(action, "readers", ())]
            assert len(set(concerned)) == len(concerned)
            match action:
                case Deliver(given, polls, readers):
                    for reader in [*polls, *readers]:
                        reader.see(given.part, given.next_offset)
                    shown.update(readers)
                case CatchUp() | BeginAnew():
                    for reader in concerned:
                        assert reader.place == "tail" and reader not in shown
                        reader.place = "searching"
                        reader.in_vain = 0
                    if isinstance(action, BeginAnew):
                        for reader in action.polls:
                            self.seat(reader, at_end=False)
                case Tell(polls, end, _):
                    for reader in polls:
                        assert end is None or position_of(end) == position_of(reader.offset)
                        reader.finish()
                case _:
                    for reader in concerned:
                        reader.finish()

    def answer(self, event: ReaderEvent) -> None:
        tail = self.asks_of
        assert tail is not None
        self.asked = self.asks_of = None
        tail.answered()
        self.perform(event(tail))

    def stop_asking_what_ended(self) -> None:
        if self.asks_of is not None and self.asks_of.state is State.ENDED:
            self.asked = self.asks_of = None

    # -- readers

    @rule(newcomers=st.lists(st.tuples(st.booleans(), BEHIND, RARELY), min_size=1, max_size=3))
    def arrive(self, newcomers: list[tuple[bool, int, bool]]) -> None:
        """SSE readers replay first; a long-poll may stand anywhere."""
        for stays, behind, is_old in newcomers:
            position = max(0, self.end - behind)
            reader = Reader(stays, (nameless if is_old else named)(position))
            self.readers.append(reader)
            if stays:
                self.search(reader)
                self.search(reader)
            else:
                self.seat(reader, at_end=False)

    @precondition(lambda self: self.among("searching"))
    @rule()
    def search_on(self) -> None:
        for reader in self.among("searching"):
            self.search(reader)

    def search(self, reader: Reader) -> None:
        position = position_of(reader.offset)
        assert position is not None
        if reader.place != "searching":
            return
        if position > self.end:
            reader.finish()
        elif position < self.end:
            reader.see(reader.offset, named(self.end))
        else:
            reader.offset = named(self.end)
            self.reach_the_end(reader)

    def reach_the_end(self, reader: Reader) -> None:
        insists = reader.in_vain >= 3
        displaced = [] if self.tail is None else self.tail.make_way(reader.offset, insists=insists)
        is_seated = self.seat(reader, at_end=True)
        assert is_seated or not insists
        reader.in_vain += not is_seated
        self.perform(displaced)

    @precondition(lambda self: self.among("tail"))
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        reader = data.draw(st.sampled_from(self.among("tail")))
        tail = self.tail
        assert tail is not None
        assert tail.detach(reader) if reader.stays else tail.leave(reader)
        reader.finish()

    # -- the origin

    @precondition(lambda self: self.tail is not None and self.asked is None)
    @rule()
    def ask(self) -> None:
        tail = self.tail
        assert tail is not None
        self.asked = tail.next_ask()
        assert (self.asked is not None) == tail.is_wanted
        if self.asked is None:
            assert tail.state is State.RESTING
            return
        assert self.asked == tail.position
        tail.departed()
        self.asks_of = tail

    @precondition(lambda self: self.tail is not None and self.tail.is_wanted)
    @rule(step=STEPS, more=st.integers(0, 3), is_closed=RARELY)
    def answer_truly(self, step: int, more: int, is_closed: bool) -> None:
        """Perhaps with what is written right now."""
        if self.asked is None:
            self.ask()
        assert self.asked is not None
        self.end += more
        at, position = self.asked, position_of(self.asked)
        assert position is not None
        if position > self.end:
            self.answer(lambda tail: tail.refused(AWAY, "upstream-error"))
        elif position < self.end:
            stop = min(position + step, self.end)
            given = entry(at, named(stop), closed=is_closed and stop == self.end)
            self.answer(lambda tail: tail.took(given, ""))
        elif is_closed:
            end = entry(at, named(self.end), closed=True, body=b"")
            self.answer(lambda tail: tail.closed(end))
        else:
            self.answer(lambda tail: tail.nothing_new(named(self.end), self.now))

    @precondition(lambda self: self.asked is not None)
    @rule(how=st.sampled_from(BAD_ANSWERS), is_now=RARELY)
    def answer_badly(self, how: ReaderEvent, is_now: bool) -> None:
        if is_now:
            self.answer(how)

    # -- time, purges

    @rule(
        more=st.integers(0, 3), how=st.sampled_from(["purged", "given_up", "stop"]), is_now=RARELY
    )
    def time_passes(self, more: int, how: str, is_now: bool) -> None:
        self.now += TRANSIT_SECS
        self.end += more
        if self.tail is None:
            return
        if is_now:
            self.perform(getattr(self.tail, how)())
        elif not self.tail.is_wanted:
            self.tail.rested()
            assert self.tail is None

    # -- what is always so

    @invariant()
    def one_question_at_a_time(self) -> None:
        self.stop_asking_what_ended()
        if self.asks_of is not None:
            assert self.asks_of is self.tail and self.asks_of.state is State.LISTENING

    @invariant()
    def nobody_is_lost(self) -> None:
        tail = self.tail
        seated = {} if tail is None else seats(tail.polls)
        riding = {} if tail is None else seats(tail.readers)
        assert seated | riding == {reader: reader.offset for reader in self.among("tail")}
        assert not any(r.stays for r in seated) and all(r.stays for r in riding)

    @invariant()
    def everybody_is_asked_for(self) -> None:
        if self.tail is not None and self.tail.is_wanted:
            assert self.tail.state in (State.ASKING, State.LISTENING)

    @invariant()
    def nobody_waits_behind_the_tail(self) -> None:
        tail = self.tail
        for reader in self.among("tail"):
            assert tail is not None
            assert (position_of(reader.offset) or 0) >= (position_of(tail.position) or 0)

    @invariant()
    def each_has_one_answer_and_his_data_in_order(self) -> None:
        for reader in self.readers:
            assert reader.answers == (reader.place == "gone")
            for (_, end), (start, _) in pairwise(reader.seen):
                assert position_of(start) == position_of(end)

    @invariant()
    def nothing_is_kept_for_nobody(self) -> None:
        if self.tail is None:
            assert len(self.tails) == 0 and self.tails.windows.bytes == 0

    def teardown(self) -> None:
        for tail in self.tails:
            self.perform(tail.stop())
        assert not self.among("tail") and len(self.tails) == 0
        assert self.tails.windows.bytes == 0


Histories.TestCase.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
test_random_histories = Histories.TestCase
