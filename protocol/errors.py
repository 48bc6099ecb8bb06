"""The one exception of malformed input. Expected refusals are replies, not exceptions."""

from collections.abc import Mapping


class ProtocolError(Exception):
    """A request that cannot be understood, with the status it deserves."""

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
        self.members = members or {}  # of the problem's body, beside the usual ones
