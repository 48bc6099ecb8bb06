"""What a process may say about a stream while another may have taken over its shard.

An answer is true for good if it confirms a commit, or holds bytes below the tail: these never
change. Any other answer (a tail, a refusal, "not found", a listing) is true only while no other
process can write to the shard, so it needs `Shard.fresh()` after it is made. If the shard is fresh
then, it was so when the answer was made: a shard is never fresh again once another took it.
"""

from origin.shard import Shard
from protocol.errors import ProtocolError
from protocol.names import STREAM_NEXT_OFFSET, STREAM_UP_TO_DATE
from protocol.replies import RETRY_AFTER, Reply, problem_of


def is_lasting(method: str, reply: Reply) -> bool:
    """Whether an answer stays true, whatever another owner of the shard does. A 503 always does: it
    says nothing of the stream."""
    if reply.status == 503:
        return True
    if method == "GET":  # a chunk says where it ends; below the tail it says no more than that
        told = {name for name, _ in reply.headers}
        return reply.status == 200 and STREAM_NEXT_OFFSET in told and STREAM_UP_TO_DATE not in told
    if method == "PUT" and reply.status == 200:  # the stream existed before
        return False
    return method != "HEAD" and 200 <= reply.status < 300


def no_owner() -> ProtocolError:
    return ProtocolError(
        503, "no-owner", "No node serves this stream at the moment; try again.", RETRY_AFTER
    )


def checked(shard: Shard, method: str, reply: Reply) -> Reply:
    """The reply if it can be said now, else that there is no owner."""
    if shard.fresh() or is_lasting(method, reply):
        return reply
    return problem_of(no_owner())
