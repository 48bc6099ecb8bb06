"""Bodies of appends: checks, and the bytes that are stored."""

from protocol.errors import ProtocolError
from protocol.jsonmode import stored_form
from protocol.requests import Append, Create
from protocol.state import StateError, check_messages
from protocol.stream import StreamState


def check_append(request: Append, body: bytes) -> None:
    """Check an append before its stream is known."""
    if not body:
        if not request.close:
            raise ProtocolError(400, "empty-body", "An append needs a body or Stream-Closed: true.")
    elif request.media_type is None:
        raise ProtocolError(400, "content-type-required", "An append needs a Content-Type.")


def check_create(request: Create, body: bytes) -> None:
    if request.first is not None and not body:
        raise ProtocolError(400, "empty-body", "On a PUT, Producer-* and Stream-Seq need a body.")


def stored_bytes(state: StreamState, body: bytes) -> bytes:
    """Unchanged, or in JSON mode as messages, if the stream accepts them."""
    if not body or not state.is_json:
        return body
    data = stored_form(body)
    if state.strict_state:
        _check_state(data)
    return data


def check_data(data: bytes) -> None:
    """Check the data of an append with a body."""
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
