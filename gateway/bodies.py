"""Room for request bodies: granted to someone who may send one, before it is taken in, and given
back when whoever needs the body is done with it."""

from gateway.limits import Shares, Short
from protocol.errors import ProtocolError
from protocol.replies import RETRY_AFTER

_NO_ROOM = {
    Short.FOR_ALL: (503, "too-many-bodies", "Too many bodies are on their way."),
    Short.FOR_SUBJECT: (
        429,
        "too-many-bodies-of-subject",
        "You have too many bodies on their way.",
    ),
}


class Admission:
    """So many bytes of one subject. Who makes it lets it go; tasks that use the body hold it."""

    __slots__ = ("_holders", "_room", "_size", "_subject")

    def __init__(self, room: Shares, subject: str, size: int) -> None:
        """Raises ProtocolError when there is no room."""
        self._room = room
        self._subject = subject
        self._size = 0
        self._holders = 1
        if size:
            self.grow(size)

    def grow(self, size: int) -> None:
        """For a body that does not say how long it is. Raises ProtocolError."""
        short = self._room.take(self._subject, size)
        if short is not None:
            raise ProtocolError(*_NO_ROOM[short], RETRY_AFTER)
        self._size += size

    def hold(self) -> None:
        self._holders += 1

    def release(self) -> None:
        self._holders -= 1
        if not self._holders and self._size:
            self._room.release(self._subject, self._size)
