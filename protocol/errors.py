"""The exception for malformed input. Expected refusals are replies, not exceptions."""

from collections.abc import Mapping


class ProtocolError(Exception):
    """A request that is refused, with the status to send."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        headers: tuple[tuple[str, str], ...] = (),
        members: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = headers
        self.members = members or {}  # additional members of the problem's body
