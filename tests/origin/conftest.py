"""What tests of the origin share."""

import pytest

from tests.helpers.origin import Clock
from tests.helpers.rawhttp import (
    Response,
)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("origin.app.time", clock)
    return clock


def code(reply: Response) -> tuple[int, str]:
    return reply.status, reply.json()["code"]
