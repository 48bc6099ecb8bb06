"""What a client may send, and how long it may take."""

from typing import Protocol

PROGRESS_BYTES = 4096  # what a body must bring in each `body_timeout_secs` to be waited for


class Limits(Protocol):
    @property
    def max_header_bytes(self) -> int: ...
    @property
    def max_body_bytes(self) -> int: ...
    @property
    def max_connections(self) -> int: ...
    @property
    def header_timeout_secs(self) -> float: ...
    @property
    def body_timeout_secs(self) -> float: ...
    @property
    def idle_timeout_secs(self) -> float: ...
