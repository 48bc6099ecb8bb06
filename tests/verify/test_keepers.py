"""What a keeper remembers for readers to begin at."""

from typing import Any, cast

from loadtest.verify.keepers import Keeper
from tests.helpers.offsets import nameless


def test_an_offset_that_a_fault_took_away_is_no_place_to_begin() -> None:
    keeper = Keeper(cast(Any, None), "verify/a", "text")
    keeper.note_offset(nameless(7))
    keeper.note_offset("")
    assert list(keeper.recent) == [nameless(7)]
