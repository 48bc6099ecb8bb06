from collections import Counter

import pytest

from loadtest.analytics.changes import BATCH, History
from protocol.state import Change, Message, materialise, parse_message, split_array


def messages_of(history: History) -> list[Message]:
    return [parse_message(raw) for batch in history.batches() for raw in split_array(batch)]


@pytest.mark.parametrize("rounds", [1, 2, 20, 21, 45])
def test_the_final_state_is_what_the_changes_add_up_to(rounds: int) -> None:
    history = History(entities=30, rounds=rounds)
    messages = messages_of(history)
    assert len(messages) == len(history) == 30 * rounds
    assert materialise(messages) == history.final_state()
    assert len(history.final_state()) == 30


def test_every_operation_is_in_it_and_fits_what_came_before() -> None:
    live: set[tuple[str, str]] = set()
    seen: Counter[str] = Counter()
    for change in messages_of(History(entities=30, rounds=45)):
        assert isinstance(change, Change)
        entity = (change.type, change.key)
        assert (entity in live) == (change.operation != "insert")
        seen[change.operation] += 1
        (live.discard if change.operation == "delete" else live.add)(entity)
    assert min(seen["insert"], seen["update"], seen["delete"]) > 30


def test_batches_have_a_bound_whatever_the_rounds() -> None:
    sizes = [len(split_array(batch)) for batch in History(6000, 4).batches()]
    assert sizes == [BATCH, BATCH, 4000]
