"""Parts of a gateway without sockets, which leave nothing behind."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.helpers.parts import MakeParts, Parts, make_parts


@pytest.fixture
async def make() -> AsyncIterator[MakeParts]:
    made: list[Parts] = []

    def start(shared: Any = None, **sections: Any) -> Parts:
        made.append(make_parts(shared=shared, **sections))
        return made[-1]

    yield start
    for parts in made:
        await parts.close()
        assert parts.hubs.unsent.total == 0, "something large outlived its reader"


@pytest.fixture
def parts(make: MakeParts) -> Parts:
    return make()
