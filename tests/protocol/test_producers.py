import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.producers import Producer, Verdict, expected_seq, judge_producer

numbers = st.integers(0, 2**53 - 1)


@pytest.mark.parametrize(
    ("known", "epoch", "seq", "verdict"),
    [
        pytest.param(None, 0, 0, Verdict.ACCEPT, id="unknown-starts-at-zero"),
        pytest.param(None, 7, 0, Verdict.ACCEPT, id="unknown-may-start-in-any-epoch"),
        pytest.param(None, 0, 1, Verdict.GAP, id="unknown-cannot-start-later"),
        pytest.param((1, 5), 0, 0, Verdict.STALE_EPOCH, id="older-epoch"),
        pytest.param((1, 5), 0, 6, Verdict.STALE_EPOCH, id="older-epoch-whatever-the-seq"),
        pytest.param((1, 5), 2, 0, Verdict.ACCEPT, id="newer-epoch"),
        pytest.param((1, 5), 9, 0, Verdict.ACCEPT, id="epochs-may-be-skipped"),
        pytest.param((1, 5), 2, 6, Verdict.BAD_EPOCH_START, id="newer-epoch-not-from-zero"),
        pytest.param((1, 5), 1, 5, Verdict.DUPLICATE, id="the-last-one-again"),
        pytest.param((1, 5), 1, 0, Verdict.DUPLICATE, id="an-older-one-again"),
        pytest.param((1, 5), 1, 6, Verdict.ACCEPT, id="the-next-one"),
        pytest.param((1, 5), 1, 7, Verdict.GAP, id="one-too-far"),
    ],
)
def test_verdict(known: tuple[int, int] | None, epoch: int, seq: int, verdict: Verdict) -> None:
    assert judge_producer(known, Producer("p", epoch, seq)) is verdict


@pytest.mark.parametrize(
    ("known", "epoch", "expected"),
    [(None, 0, 0), ((1, 5), 1, 6), ((1, 5), 2, 0)],
    ids=["unknown", "same-epoch", "another-epoch"],
)
def test_gap_names_what_would_be_accepted(
    known: tuple[int, int] | None, epoch: int, expected: int
) -> None:
    assert expected_seq(known, Producer("p", epoch, 99)) == expected
    assert judge_producer(known, Producer("p", epoch, expected)) is Verdict.ACCEPT


@given(st.none() | st.tuples(numbers, numbers), numbers, numbers)
def test_what_was_accepted_is_a_duplicate_afterwards(
    known: tuple[int, int] | None, epoch: int, seq: int
) -> None:
    producer = Producer("p", epoch, seq)
    if judge_producer(known, producer) is Verdict.ACCEPT:
        assert judge_producer((epoch, seq), producer) is Verdict.DUPLICATE
        assert judge_producer((epoch, seq), Producer("p", epoch, seq + 1)) is Verdict.ACCEPT


@given(st.tuples(numbers, numbers), numbers, numbers)
def test_state_only_moves_forward(known: tuple[int, int], epoch: int, seq: int) -> None:
    if judge_producer(known, Producer("p", epoch, seq)) is Verdict.ACCEPT:
        assert (epoch, seq) > known
