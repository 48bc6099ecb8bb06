"""The one exception of malformed input. Expected refusals are replies, not exceptions."""


class ProtocolError(Exception):
    """A request that cannot be understood, with the status it deserves."""

    def __init__(
        self, status: int, code: str, detail: str, headers: tuple[tuple[str, str], ...] = ()
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = headers
