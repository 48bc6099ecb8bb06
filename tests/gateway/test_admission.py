"""Room for bodies, and who gives it back when."""

import pytest

from gateway.admission import Admission
from gateway.limits import Shares
from protocol.errors import ProtocolError


def test_room_is_given_back_by_the_last_who_needs_the_body() -> None:
    room = Shares(100, 50)
    admission = Admission(room, "a", 40)
    admission.hold()
    admission.release()
    assert room.total == 40
    admission.release()
    assert room.total == 0


def test_a_refused_growth_keeps_what_was_granted_before() -> None:
    room = Shares(100, 50)
    admission = Admission(room, "a", 0)
    admission.grow(30)
    with pytest.raises(ProtocolError) as refused:
        admission.grow(30)
    assert (refused.value.status, refused.value.code) == (429, "too-many-bodies-of-subject")
    assert room.total == 30
    admission.release()
    assert room.total == 0


def test_all_together_have_an_end() -> None:
    room = Shares(100, 50)
    held = [Admission(room, name, 50) for name in "ab"]
    with pytest.raises(ProtocolError) as refused:
        Admission(room, "c", 1)
    assert (refused.value.status, refused.value.code) == (503, "too-many-bodies")
    held[0].release()
    Admission(room, "c", 50)
