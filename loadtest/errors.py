"""What can go wrong in a load test, apart from a slow server. Pure."""


class RunFailedError(Exception):
    """A run gave no valid figure: wrong answers, broken connections, a server that died."""


class UnavailableError(Exception):
    """A tool or server that is not on this machine and cannot be installed here."""


class NotStartedError(RunFailedError):
    """A program ended before it was ready."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code
