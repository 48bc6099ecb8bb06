"""What a client is told of a storage error: enough to act on, nothing of our files."""

from origin.storage.base import DamagedData, StorageFull
from protocol.replies import RETRY_AFTER, Reply, problem


def storage_problem(error: Exception) -> Reply:
    if isinstance(error, StorageFull):
        return problem(507, "no-space", "There is no space for this now.", RETRY_AFTER)
    if isinstance(error, DamagedData):
        return problem(500, "damaged", "Stored data of this stream is damaged.")
    return problem(
        503, "storage-failed", "The storage failed; writes wait for a restart.", RETRY_AFTER
    )
