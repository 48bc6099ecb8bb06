"""What a keeper remembers for readers to begin at."""

from typing import Any, cast

from loadtest.verify.keepers import Keeper
from protocol.offsets import format_offset


def test_an_offset_that_a_fault_took_away_is_no_place_to_begin() -> None:
    keeper = Keeper(cast(Any, None), "verify/a", "text")
    keeper.note_offset(format_offset(7))
    keeper.note_offset("")
    assert list(keeper.recent) == [format_offset(7)]
