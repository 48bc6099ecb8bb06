"""Bodies of appends: what they must be, and the bytes that are kept of them."""

from protocol.errors import ProtocolError
from protocol.jsonmode import stored_form
from protocol.requests import Append, Create
from protocol.state import StateError, check_messages
from protocol.stream import StreamState


def check_append(request: Append, body: bytes) -> None:
    """What can be said of an append before its stream is known."""
    if not body:
        if not request.close:
            raise ProtocolError(400, "empty-body", "An append needs a body or Stream-Closed: true.")
    elif request.media_type is None:
        raise ProtocolError(400, "content-type-required", "An append needs a Content-Type.")


def check_create(request: Create, body: bytes) -> None:
    if request.first is not None and not body:
        raise ProtocolError(
            400, "empty-body", "Producer-* and Stream-Seq on a PUT are for its body."
        )


def stored_bytes(state: StreamState, body: bytes) -> bytes:
    """As they are, or in JSON mode as messages, if these are what the stream takes."""
    if not body or not state.is_json:
        return body
    data = stored_form(body)
    if state.strict_state:
        _check_state(data)
    return data


def check_data(data: bytes) -> None:
    """Of an append with a body."""
    if not data:
        raise ProtocolError(400, "empty-array", "An append needs at least one message.")


def _check_state(data: bytes) -> None:
    try:
        check_messages(data)
    except StateError as error:
        raise ProtocolError(
            400,
            "invalid-state-message",
            str(error),
            members={"position": error.position, "field": error.field},
        ) from None
