"""From a stream's messages to its state: which messages count, and errors about the others."""

from collections.abc import Callable

from protocol.state import Change, Materialised, Message, StateError, parse_message
from weir.client.escapes import shown, shown_word
from weir.client.stream import Batch, Begun, Event

Check = Callable[[Change], str | None]  # why a change is invalid, or None
Refuse = Callable[[str], None]  # called for every invalid message


class Replay:
    """The state after the events so far, and the size of its input."""

    def __init__(self, refuse: Refuse, check: Check | None = None) -> None:
        self._refuse = refuse
        self._check = check
        self._begin(Begun(None))

    def _begin(self, begun: Begun) -> None:
        self.begun = begun
        self.state = Materialised()
        self.messages = 0
        self.size_bytes = 0

    def take(self, event: Event) -> list[Message]:
        """Apply an event; returns its valid messages."""
        if isinstance(event, Begun):
            self._begin(event)
        if not isinstance(event, Batch):
            return []
        counted = []
        for number, raw in enumerate(event.messages, event.first):
            self.messages += 1
            self.size_bytes += len(raw)
            message = self._judge(raw, f"message {number} {shown(event.place)}")
            if message is not None:
                self.state.apply(message)
                counted.append(message)
        return counted

    def _judge(self, raw: bytes, place: str) -> Message | None:
        try:
            message = parse_message(raw)
        except StateError as error:
            self._refuse(f"{place}: {error.field} {error.reason}".replace(":  ", ": "))
            return None
        if self._check is None or not isinstance(message, Change):
            return message
        reason = self._check(message)
        if reason is None:
            return message
        entity = f"{shown_word(message.type)} {shown_word(message.key)}"
        self._refuse(f"{place}: {entity}: {shown(reason)}")
        return None
