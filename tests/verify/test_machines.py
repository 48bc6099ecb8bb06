"""What runs in a cluster under test is started as an operator would start it."""

import pytest

from loadtest.errors import NotStartedError
from loadtest.verify.cluster.machines import Machines


class Program:
    """Ends with these codes, one after another, before it starts."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)
        self.starts = 0

    async def start_again(self) -> None:
        self.starts += 1
        if self.codes:
            raise NotStartedError("it ended", self.codes.pop(0))


def machines(program: Program) -> Machines:
    found = Machines.__new__(Machines)
    found.parts = {"node-1": program}  # type: ignore[dict-item]
    return found


async def test_a_node_that_reaches_nobody_yet_is_started_again() -> None:
    program = Program(3, 2)
    await machines(program).start_again("node-1")
    assert program.starts == 3


async def test_a_node_that_fails_is_not_started_again() -> None:
    program = Program(1)
    with pytest.raises(NotStartedError):
        await machines(program).start_again("node-1")
    assert program.starts == 1
