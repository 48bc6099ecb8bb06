"""Whether doors let in whom they must, and nobody else. Pure."""

from collections.abc import Iterator
from math import inf

from loadtest.verify.history import SHUT_OUT, Operation, ReadResult
from loadtest.verify.messages import generation_of
from loadtest.verify.timeline import Timeline, Violation, seen_by

# In which everyone has fetched the key set again, even if it was paused meanwhile.
KEY_SET_SECS = 12.0


def leaked_scopes(line: Timeline) -> Iterator[Violation]:
    for operation in line.operations:
        if operation.allowed or not operation.status:
            continue
        ids = operation.ids if isinstance(operation, ReadResult) else []
        if ids or _was_let_in(operation):
            text = f"has no scope for it and got {operation.status} {ids[:3]}"
            yield seen_by("leaked-scope", operation, text)
    for append in line.appends:
        life = line.lives[append.stream, generation_of(append.id)]
        if not append.allowed and append.id in life.places:
            yield seen_by("leaked-scope", append, f"has no scope for it and wrote {append.id}")


def dead_tokens(line: Timeline) -> Iterator[Violation]:
    for operation in line.operations:
        withdrawn = line.withdrawn.get(operation.key, inf)
        if _was_let_in(operation) and operation.began > withdrawn + KEY_SET_SECS:
            since = operation.began - withdrawn
            text = f"a token of {operation.key} was good {since:.1f} s after its key had gone"
            yield seen_by("dead-token", operation, text)


def shut_out(line: Timeline) -> Iterator[Violation]:
    """Whoever has a good token is let in; a key that is quite new may not be known everywhere."""
    for operation in line.operations:
        known = line.published.get(operation.key, inf) + KEY_SET_SECS
        gone = line.withdrawn.get(operation.key, inf)
        if operation.allowed and operation.status in SHUT_OUT:
            if known < operation.began and operation.ended < gone:
                text = f"got {operation.status} in spite of a good token of {operation.key}"
                yield seen_by("shut-out", operation, text)


def _was_let_in(operation: Operation) -> bool:
    """Whether the answer is one that only a good token gets: a 304 or 404 as well as a 200."""
    status = operation.status
    return 0 < status < 500 and status not in SHUT_OUT and status != 429
