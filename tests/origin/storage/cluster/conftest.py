from collections.abc import AsyncIterator, Iterator
from itertools import count

import pytest

from origin.storage.cluster.jetstream import JetStream
from tests.helpers.nats import Nats, nats_servers

_names = count()


@pytest.fixture(scope="session")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nats]:
    with nats_servers(tmp_path_factory.mktemp("nats")) as servers:
        yield servers


@pytest.fixture
async def jetstream(nats: Nats) -> AsyncIterator[JetStream]:
    jetstream = await JetStream.connect(nats.urls)
    yield jetstream
    await jetstream.close()


@pytest.fixture
def cluster() -> str:
    """A name of its own for each test."""
    return f"test-{next(_names)}"
