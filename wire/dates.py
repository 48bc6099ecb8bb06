"""The Date line of response heads."""

import time
from email.utils import formatdate


class DateLine:
    """The Date line and the empty line that ends a head, formatted once a second."""

    def __init__(self) -> None:
        self._second = 0
        self._line = b""

    def __call__(self) -> bytes:
        second = int(time.time())
        if second != self._second:
            self._second = second
            self._line = f"Date: {formatdate(second, usegmt=True)}\r\n\r\n".encode()
        return self._line
