"""Each check over histories written by hand: silent on an honest one, loud on a small lie."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.verify.check import Findings, check_history
from loadtest.verify.check_access import KEY_SET_SECS
from loadtest.verify.history import Append, End, ReadResult
from loadtest.verify.timeline import sort_history
from tests.verify.honest import START, STREAM, Honest, offset


@pytest.fixture
def stream() -> Honest:
    """With three messages of one producer and two of another."""
    honest = Honest()
    honest.create()
    for producer in ("p0", "p1", "p0", "p0", "p1"):
        honest.append(producer)
    return honest


def check(honest: Honest) -> Findings:
    """As if nothing came after it."""
    return check_history(sort_history([*honest.records, End(at=honest.moment()[1])]))


def names(honest: Honest) -> set[str]:
    return {violation.name for violation in check(honest).violations}


def test_an_honest_history_breaks_no_promise(stream: Honest) -> None:
    stream.read()
    stream.read(offset(2), limit=2)
    stream.snapshot()
    stream.read()
    stream.append()
    stream.bootstrap()
    stream.close()
    stream.append()
    stream.read(offset(6))
    stream.delete()
    stream.create()
    stream.append()
    stream.read(mode="final")
    stream.audit()
    assert check(stream).violations == []


# -- writing ---------------------------------------------------------------------------------------


def test_an_acknowledged_message_that_is_not_there_is_a_lost_acknowledgement(
    stream: Honest,
) -> None:
    stream.ids.pop()
    stream.audit()
    assert names(stream) == {"lost-acknowledgement"}


def test_a_producer_that_the_server_has_forgotten_is_a_lost_acknowledgement(
    stream: Honest,
) -> None:
    stream.append(outcome="refused", status=409, code="sequence-gap")
    stream.ids.pop()
    stream.audit()
    assert names(stream) == {"lost-acknowledgement"}


def test_a_message_that_is_there_twice_is_found(stream: Honest) -> None:
    stream.ids.append(stream.ids[-1])
    stream.audit()
    assert "written-twice" in names(stream)


def test_a_message_that_nobody_sent_is_found(stream: Honest) -> None:
    stream.ids.append("0.p9.0")
    stream.audit()
    assert names(stream) == {"never-sent"}


def test_a_message_of_another_incarnation_in_the_stream_was_never_sent_to_it(
    stream: Honest,
) -> None:
    stream.delete()
    stream.create()
    stream.append()
    stream.ids.append("0.p0.0")
    stream.audit()
    assert "never-sent" in names(stream)


def test_a_message_that_was_only_ever_refused_must_not_be_there(stream: Honest) -> None:
    stream.append(outcome="refused", status=0, trouble="refused")
    stream.audit()
    assert names(stream) == {"refused-but-written"}


def test_a_message_that_the_close_refused_may_be_there_by_a_copy(stream: Honest) -> None:
    stream.append(outcome="refused", status=409, code="closed")
    stream.close()
    stream.audit()
    assert names(stream) == set()


def test_an_unknown_outcome_may_be_either(stream: Honest) -> None:
    stream.append(outcome="unknown", status=504)
    stream.audit()
    assert names(stream) == set()
    stream = Honest()
    stream.create()
    stream.append(outcome="unknown", status=504)
    stream.ids.pop()
    stream.audit()
    assert names(stream) == set()


def test_messages_of_a_producer_that_changed_places_are_found(stream: Honest) -> None:
    stream.ids[0], stream.ids[2] = stream.ids[2], stream.ids[0]
    stream.audit()
    assert "out-of-order" in names(stream)


def test_what_was_acknowledged_before_another_began_stands_before_it(stream: Honest) -> None:
    stream.ids[0], stream.ids[1] = stream.ids[1], stream.ids[0]
    stream.audit()
    assert "out-of-order" in names(stream)


def test_an_offset_that_a_writer_was_told_is_the_end_of_his_message() -> None:
    stream = Honest()
    stream.create()
    stream.append()
    stream.append(next=offset(1))
    stream.audit()
    assert names(stream) == {"wrong-offset"}


def test_an_acknowledgement_that_lost_its_offset_on_the_way_is_one() -> None:
    stream = Honest()
    stream.create()
    stream.append(next="")
    stream.audit()
    assert names(stream) == set()


# -- reading ---------------------------------------------------------------------------------------


def test_a_message_left_out_of_an_answer_is_a_gap(stream: Honest) -> None:
    stream.read(ids=[*stream.ids[:2], *stream.ids[3:]])
    stream.audit()
    assert names(stream) == {"gap"}


def test_an_answer_that_begins_too_late_is_a_gap(stream: Honest) -> None:
    stream.read(offset(1), ids=stream.ids[2:])
    stream.audit()
    assert names(stream) == {"gap"}


def test_an_answer_that_ends_before_its_own_offset_is_a_gap(stream: Honest) -> None:
    stream.read(ids=stream.ids[:-1])
    stream.audit()
    assert names(stream) == {"gap"}


def test_an_event_without_its_data_is_a_gap(stream: Honest) -> None:
    stream.read(offset(2), ids=[], mode="sse")
    stream.audit()
    assert names(stream) == {"gap"}


def test_a_message_that_comes_again_is_found(stream: Honest) -> None:
    stream.read(offset(2), ids=stream.ids[1:])
    stream.audit()
    assert names(stream) == {"repeated"}


def test_a_message_that_was_read_and_is_not_there_is_found(stream: Honest) -> None:
    stream.read(ids=[*stream.ids, "0.p0.3"], next=offset(6))
    stream.audit()
    assert "never-written" in names(stream)


def test_a_message_of_unknown_outcome_may_have_come_after_the_last_audit(stream: Honest) -> None:
    stream.append(outcome="unknown", status=504)
    stream.read(mode="sse")
    stream.ids.pop()
    stream.delete()
    assert names(stream) == set()


def test_a_broken_body_in_a_whole_answer_is_torn(stream: Honest) -> None:
    stream.read(damage="after 2 messages: not whole")
    stream.read(damage="after 2 messages: not whole", outcome="unknown", trouble="timeout")
    stream.audit()
    assert names(stream) == {"torn"}
    assert len(check(stream).violations) == 1


CUT: dict[str, Any] = {"trouble": "cut", "outcome": "unknown", "up_to_date": False}
CUT |= {"ids": [], "next": ""}


def test_a_200_that_is_cut_short_is_truncated(stream: Honest) -> None:
    stream.read(**CUT)
    stream.audit()
    assert names(stream) == {"truncated"}


@pytest.mark.parametrize("meets", [True, False])
def test_a_200_is_cut_when_its_stream_is_deleted(stream: Honest, meets: bool) -> None:
    read = stream.read(**CUT)
    change = stream.delete()
    if meets:
        read.ended = change.began
    assert names(stream) == (set() if meets else {"truncated"})


@pytest.mark.parametrize(
    ("door", "fault"),
    [
        ("gateway-1", "kill gateway-1"),
        ("envoy", "kill gateway-1"),
        ("envoy", "kill envoy"),
        ("network", "kill envoy"),
        ("network", "kill gateway-0"),
        ("network", "inject network"),
        ("origin", "kill origin"),
    ],
)
def test_who_is_killed_cannot_finish_an_answer(stream: Honest, door: str, fault: str) -> None:
    read_during(stream, door, fault)
    assert names(stream) == set()


@pytest.mark.parametrize(
    ("door", "fault"),
    [
        ("gateway-0", "kill gateway-1"),
        ("gateway-0", "kill envoy"),
        ("gateway-0", "stop gateway-0"),
        ("envoy", "stop gateway-0"),
        ("envoy", "inject network"),
        ("envoy", "kill origin"),
        ("network", "pause origin"),
        ("network", "inject faults"),
        ("origin", "pause origin"),
    ],
)
def test_harm_to_others_and_a_stop_are_no_excuse(stream: Honest, door: str, fault: str) -> None:
    read_during(stream, door, fault)
    assert names(stream) == {"truncated"}


def read_during(stream: Honest, door: str, fault: str) -> None:
    began, _ = stream.moment()
    stream.fault(*fault.split())
    stream.read(door=door, began=began, **CUT)
    stream.audit()


def test_a_network_is_bad_only_while_it_is_told_to_be(stream: Honest) -> None:
    stream.fault("inject", "network")
    stream.read(door="network", **CUT)
    stream.audit()
    assert names(stream) == {"truncated"}


def test_events_may_end_at_any_time(stream: Honest) -> None:
    stream.read(mode="sse", **CUT)
    stream.audit()
    assert names(stream) == set()


def test_messages_of_another_stream_are_foreign(stream: Honest) -> None:
    stream.read(ids=["verify/b/text/0.p0.0"], next=offset(1), up_to_date=False)
    stream.audit()
    assert "foreign" in names(stream)


def test_two_incarnations_in_one_answer_are_found(stream: Honest) -> None:
    old = stream.ids[0]
    stream.delete()
    stream.create()
    stream.append()
    stream.read(ids=[old, *stream.ids])
    stream.audit()
    assert "mixed-incarnations" in names(stream)


@pytest.fixture
def recreated(stream: Honest) -> Honest:
    """With a read of the incarnation before, after its deletion."""
    old = list(stream.ids)
    stream.delete()
    stream.create()
    stream.append()
    stream.read(ids=old[:2], next=offset(2), up_to_date=False)
    stream.audit()
    return stream


def test_an_answer_from_before_the_deletion_is_stale(recreated: Honest) -> None:
    assert names(recreated) == {"stale-incarnation"}


def test_a_304_that_stands_for_a_deleted_incarnation_is_stale(stream: Honest) -> None:
    old = list(stream.ids)
    stream.delete()
    stream.create()
    stream.read(ids=old, status=304, outcome="refused", next=offset(5), up_to_date=False)
    stream.audit()
    assert names(stream) == {"stale-incarnation"}


def test_a_stale_answer_is_tolerated_while_gateways_cannot_tell_each_other() -> None:
    stream = Honest()
    stream.create()
    stream.append()
    stream.fault("kill", "redis")
    old = list(stream.ids)
    stream.delete()
    stream.create()
    stream.read(ids=old, next=offset(1), up_to_date=False)
    stream.audit()
    findings = check(stream)
    assert findings.violations == []
    assert [found.name for found in findings.tolerated] == ["stale-incarnation"]


def test_an_outage_after_the_deletion_is_no_excuse(stream: Honest) -> None:
    old = list(stream.ids)
    stream.delete()
    stream.create()
    stream.fault("kill", "redis")
    stream.read(ids=old, next=offset(5), up_to_date=False)
    stream.audit()
    assert names(stream) == {"stale-incarnation"}


def test_a_reader_that_asked_before_the_deletion_may_get_what_was_there(stream: Honest) -> None:
    began, _ = stream.moment()
    old = list(stream.ids)
    stream.delete()
    stream.create()
    stream.read(ids=old, next=offset(5), began=began, mode="sse")
    stream.audit()
    assert names(stream) == set()


def test_a_plain_read_sees_what_was_acknowledged_before_it(stream: Honest) -> None:
    stream.read(ids=stream.ids[:3], next=offset(3))
    stream.audit()
    assert names(stream) == {"missed-write"}


def test_a_plain_read_that_says_there_is_more_promises_nothing(stream: Honest) -> None:
    stream.read(ids=stream.ids[:3], next=offset(3), up_to_date=False)
    stream.audit()
    assert names(stream) == set()


def test_a_read_that_began_before_the_acknowledgement_need_not_see_it(stream: Honest) -> None:
    began, _ = stream.moment()
    before = list(stream.ids)
    stream.append()
    stream.read(ids=before, next=offset(5), began=began)
    stream.audit()
    assert names(stream) == set()


def test_the_last_look_must_reach_the_end(stream: Honest) -> None:
    stream.append(outcome="unknown", status=504)
    stream.read(ids=stream.ids[:-1], next=offset(5), mode="final")
    stream.audit()
    assert names(stream) == {"incomplete"}


def test_the_last_look_must_not_give_up(stream: Honest) -> None:
    stream.read(limit=2, mode="final")
    stream.read(offset(2), status=502, outcome="unknown", ids=[], up_to_date=False, mode="final")
    stream.audit()
    assert names(stream) == {"incomplete"}
    stream.read(offset(2), mode="final")
    assert names(stream) == set()


@pytest.mark.parametrize("mode", ["long-poll", "sse"])
def test_whoever_waits_in_the_last_look_must_be_told_all(stream: Honest, mode: str) -> None:
    stream.read(limit=4, mode=mode, last=True)
    stream.read(offset(4), mode=mode, last=True, status=0, outcome="unknown", ids=[], next="")
    stream.audit()
    assert names(stream) == {"undelivered"}
    stream.read(offset(4), mode=mode, last=True)
    assert names(stream) == set()


def test_whoever_waits_in_the_last_look_and_hears_nothing_is_found(stream: Honest) -> None:
    silence: dict[str, Any] = {"status": 0, "outcome": "unknown", "ids": [], "next": ""}
    stream.read(mode="sse", last=True, **silence)
    stream.audit()
    assert names(stream) == {"undelivered"}


def test_the_snapshot_stands_for_as_many_messages_as_it_says(stream: Honest) -> None:
    stream.snapshot()
    stream.append()
    stream.bootstrap().snapshot -= 1
    stream.audit()
    assert names(stream) == {"gap"}


# -- ends ------------------------------------------------------------------------------------------


def test_a_closed_stream_takes_nothing_more(stream: Honest) -> None:
    stream.close()
    stream.is_closed = False
    stream.append()
    stream.is_closed = True
    stream.audit()
    assert names(stream) == {"reopened"}


def test_a_closed_stream_is_closed_for_every_reader(stream: Honest) -> None:
    stream.close()
    stream.read(closed=False)
    stream.audit()
    assert names(stream) == {"reopened"}


def test_the_origin_must_not_forget_a_close(stream: Honest) -> None:
    stream.close()
    stream.is_closed = False
    stream.audit()
    assert names(stream) == {"reopened"}


def test_nobody_sees_a_close_before_it_was_asked_for(stream: Honest) -> None:
    stream.read(closed=True)
    stream.close()
    stream.audit()
    assert names(stream) == {"closed-early"}


@pytest.mark.parametrize("status", [404, 410])
def test_a_stream_that_is_there_is_found(stream: Honest, status: int) -> None:
    stream.read(status=status, outcome="refused", ids=[], next="", up_to_date=False)
    stream.audit()
    assert names(stream) == {"vanished"}


def test_a_snapshot_may_be_replaced_while_it_is_asked_for(stream: Honest) -> None:
    told: dict[str, Any] = {"status": 404, "outcome": "refused", "ids": [], "next": ""}
    began, _ = stream.moment()
    stream.snapshot()
    stream.read("", mode="snapshot", began=began, **told)
    assert names(stream) == set()
    stream.read("", mode="snapshot", **told)
    assert names(stream) == {"vanished"}


def test_a_new_stream_has_no_snapshot_of_the_old_one(stream: Honest) -> None:
    stream.snapshot()
    stream.delete()
    stream.create()
    told: dict[str, Any] = {"status": 404, "outcome": "refused", "ids": [], "next": ""}
    stream.read("", mode="snapshot", **told)
    assert names(stream) == set()


@pytest.mark.parametrize("status", [400, 410])
def test_an_offset_that_was_given_out_is_taken_back(stream: Honest, status: int) -> None:
    stream.read(offset(3), status=status, outcome="refused", ids=[], next="", up_to_date=False)
    stream.audit()
    assert names(stream) == {"vanished"}


@pytest.mark.parametrize("status", [400, 410])
def test_an_offset_of_an_incarnation_that_is_gone_may_be_refused(
    stream: Honest, status: int
) -> None:
    stream.delete()
    stream.create()
    stream.append()
    stream.read(offset(5), status=status, outcome="refused", ids=[], next="", up_to_date=False)
    stream.audit()
    assert names(stream) == set()


def test_cursors_and_offsets_never_go_back(stream: Honest) -> None:
    stream.read(offset(5), mode="long-poll", cursor_sent="12", cursor="11")
    stream.read(offset(5), mode="sse", next=offset(4))
    stream.audit()
    assert {"cursor-went-back", "offset-went-back"} <= names(stream)


# -- doors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 204, 304, 404, 410])
def test_whoever_has_no_scope_learns_nothing(stream: Honest, status: int) -> None:
    stream.read(allowed=False, status=status, ids=[], next="", up_to_date=False)
    stream.audit()
    assert names(stream) == {"leaked-scope"}


@pytest.mark.parametrize("status", [401, 403, 429, 502, 0])
def test_whoever_has_no_scope_may_be_refused(stream: Honest, status: int) -> None:
    told: dict[str, Any] = {"ids": [], "next": "", "up_to_date": False, "outcome": "refused"}
    stream.read(allowed=False, status=status, **told)
    stream.audit()
    assert names(stream) == set()


def test_a_refusal_with_messages_in_it_is_a_leak(stream: Honest) -> None:
    stream.read(allowed=False, status=403, outcome="refused", next="")
    stream.audit()
    assert names(stream) == {"leaked-scope"}


def test_a_message_of_somebody_who_may_not_write_is_a_leak(stream: Honest) -> None:
    stream.append("intruder", allowed=False, outcome="unknown", status=504)
    stream.audit()
    assert names(stream) == {"leaked-scope"}


@pytest.mark.parametrize("told", [{}, {"status": 304, "outcome": "refused"}])
def test_a_token_is_dead_soon_after_its_key(stream: Honest, told: dict[str, Any]) -> None:
    stream.withdraw("key-1")
    stream.read(key="key-1")
    stream.audit()
    assert names(stream) == set()
    stream.wait(int(KEY_SET_SECS))
    stream.refuse(key="key-1")
    assert names(stream) == set()
    stream.read(key="key-1", **told)
    assert names(stream) == {"dead-token"}


@pytest.mark.parametrize("status", [401, 403])
def test_who_has_a_good_token_is_let_in(stream: Honest, status: int) -> None:
    stream.publish("key-1")
    stream.refuse(status, key="key-1")  # it is new: somebody may not know it yet
    stream.wait(int(KEY_SET_SECS))
    stream.refuse(status, key="key-1", allowed=False)
    stream.audit()
    assert names(stream) == set()
    stream.refuse(status, key="key-1")
    assert names(stream) == {"shut-out"}


def test_who_comes_with_a_key_that_goes_may_be_refused(stream: Honest) -> None:
    stream.publish("key-1")
    stream.wait(int(KEY_SET_SECS) + 1)
    began, _ = stream.moment()
    stream.withdraw("key-1")
    stream.refuse(key="key-1", began=began)
    stream.append(key="key-1", began=began, outcome="refused", status=401)
    stream.ids.pop()
    stream.audit()
    assert names(stream) == set()


# -- laws ------------------------------------------------------------------------------------------

STEPS = ("append p0", "append p1", "read", "read on", "snapshot", "bootstrap", "recreate", "close")


def play(steps: list[str]) -> Honest:
    stream = Honest()
    stream.create()
    reached = START
    for step in steps:
        match step.split():
            case ["append", producer]:
                stream.append(producer)
            case ["read"]:
                reached = stream.read(limit=3).next or START
            case ["read", "on"]:
                reached = stream.read(reached, limit=2).next or START
            case ["recreate"]:
                stream.delete()
                stream.create()
                reached = START
            case [other]:
                getattr(stream, other)()
    stream.audit()
    return stream


@given(st.lists(st.sampled_from(STEPS), max_size=40))
def test_no_honest_history_is_blamed(steps: list[str]) -> None:
    assert check(play(steps)).violations == []


def drop(ids: list[str], at: int) -> list[str]:
    return ids[:at] + ids[at + 1 :]


def repeat(ids: list[str], at: int) -> list[str]:
    return ids[:at] + [ids[at], *ids[at:]]


def swap(ids: list[str], at: int) -> list[str]:
    other = (at + 1) % len(ids)
    swapped = list(ids)
    swapped[at], swapped[other] = ids[other], ids[at]
    return swapped


@given(
    st.lists(st.sampled_from(STEPS), max_size=40),
    st.sampled_from([drop, repeat, swap]),
    st.data(),
)
def test_no_answer_can_lie_about_one_message(
    steps: list[str], lie: Callable[[list[str], int], list[str]], data: st.DataObject
) -> None:
    stream = play([*steps, "recreate", "append p0", "append p1", "read"])
    reads = [r for r in stream.records if isinstance(r, ReadResult) and len(r.ids) > 1]
    read = data.draw(st.sampled_from(reads))
    read.ids = lie(read.ids, data.draw(st.integers(0, len(read.ids) - 1)))
    assert {"gap", "repeated", "wrong-offset"} & names(stream)


@given(st.lists(st.sampled_from(STEPS), max_size=40), st.data())
def test_no_acknowledged_message_can_be_lost(steps: list[str], data: st.DataObject) -> None:
    stream = play([*steps, "recreate", "append p0"])
    appends = [a for a in stream.records if isinstance(a, Append) and a.outcome == "ok"]
    lost = data.draw(st.sampled_from(appends)).id
    for record in stream.records:
        if not isinstance(record, Append) and lost in getattr(record, "ids", []):
            record.ids.remove(lost)  # type: ignore[union-attr]
    assert "lost-acknowledgement" in names(stream)


def test_streams_are_told_apart() -> None:
    """The same ids in another stream are other messages."""
    stream = Honest()
    stream.create()
    stream.append()
    stream.audit()
    for record in list(stream.records):
        if isinstance(record, Append):
            record.stream = STREAM.replace("/a/", "/b/")
    assert "never-sent" in names(stream)
