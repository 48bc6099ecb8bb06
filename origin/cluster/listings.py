"""One listing of a bucket from the listings of many shards. Pure."""

from collections.abc import Iterable, Sequence
from heapq import merge
from itertools import islice
from typing import TypeVar

from origin.cluster.questions import Listed

T = TypeVar("T")


def merged(pages: Sequence[Listed], limit: int) -> Listed:
    """Each page has the first names of its shards, at most `limit`, so the first `limit` of all are
    among them."""
    pairs = (zip(page.names, page.rows, strict=True) for page in pages)
    found, are_more = first_of(pairs, limit)
    has_more = are_more or any(page.has_more for page in pages)
    return Listed([name for name, _ in found], [row for _, row in found], has_more)


def first_of(
    parts: Iterable[Iterable[tuple[str, T]]], limit: int
) -> tuple[list[tuple[str, T]], bool]:
    """The first `limit` names of all, with what they come with, and whether that leaves some."""
    found = list(islice(merge(*parts, key=lambda pair: pair[0]), limit + 1))
    return found[:limit], len(found) > limit
