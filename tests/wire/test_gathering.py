"""Bodies that come in pieces."""

from hypothesis import given
from hypothesis import strategies as st

from wire.heads import make_head
from wire.requests import PROGRESS_BYTES, Gathering


def gather(size: int) -> Gathering:
    return Gathering(make_head("POST", "/", "", {}, size), b"")


@given(body=st.binary(min_size=1, max_size=40), sizes=st.lists(st.integers(1, 9), min_size=40))
def test_it_takes_its_own_bytes_and_no_more(body: bytes, sizes: list[int]) -> None:
    gathering, data = gather(len(body)), body + b"the next request"
    at = 0
    for size in sizes:
        at = gathering.take(data[: at + size], at)
        assert gathering.is_whole == (at == len(body))
    assert gathering.body == body


def test_progress_is_counted_from_look_to_look() -> None:
    gathering = gather(3 * PROGRESS_BYTES)
    looks = []
    for size in (PROGRESS_BYTES, PROGRESS_BYTES - 1, 1, PROGRESS_BYTES - 1):
        gathering.take(bytes(size), 0)
        looks.append(gathering.has_progressed())
    assert looks == [True, False, False, False]


def test_an_admission_is_released_with_it() -> None:
    class Admission:
        released = 0

        def release(self) -> None:
            self.released += 1

    gathering, admission = gather(1), Admission()
    gathering.head.admission = admission
    gathering.release()
    assert admission.released == 1
