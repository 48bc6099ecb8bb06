"""One listing of a bucket from the listings of many shards. Pure."""

from collections.abc import Iterable
from heapq import merge
from itertools import islice

from origin.cluster.questions import Listed


def merged(pages: Iterable[Listed], limit: int) -> Listed:
    """Each page has the first names of its shards, at most `limit`, so the first `limit` of all are
    among them."""
    pages = list(pages)
    rows = merge(*(zip(page.names, page.rows, strict=True) for page in pages), key=_name)
    found = list(islice(rows, limit + 1))
    has_more = len(found) > limit or any(page.has_more for page in pages)
    del found[limit:]
    return Listed([name for name, _ in found], [row for _, row in found], has_more)


def _name(pair: tuple[str, dict[str, object] | None]) -> str:
    return pair[0]
