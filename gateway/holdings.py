"""What this process holds of streams: stored parts, fetches under way, what is known of each."""

from gateway.config import CacheConfig
from gateway.flights import Flights
from gateway.reads import Fetched
from gateway.store import Store
from gateway.streams import Streams


class Holdings:
    def __init__(self, config: CacheConfig) -> None:
        self.store = Store(config.max_bytes, config.max_object_bytes)
        self.streams = Streams()
        self.flights: Flights[Fetched] = Flights(
            lambda fetched: fetched.settles, self.streams.stamps
        )
