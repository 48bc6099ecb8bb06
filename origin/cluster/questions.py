"""What nodes ask each other, as JSON. Each question is for the owner of a shard. An answer is true
when it is given: the owner checks that the shard is fresh."""

from msgspec import Struct


class WhereIs(Struct, frozen=True, tag=True):
    """For the home shard of a stream: which shard has it, or would have it?"""

    name: str


class Permit(Struct, frozen=True, tag=True):
    """For a shard whose streams are not all at home in it: may a stream be created there?"""

    shard: int
    name: str


class Revoke(Struct, frozen=True, tag=True):
    """For the same: revoke all permits, unless the stream is there."""

    shard: int
    name: str


class Missing(Struct, frozen=True, tag=True):
    """For the same: which of these are not there?"""

    shard: int
    names: list[str]


class HasBucket(Struct, frozen=True, tag=True):
    """For the home shard of a bucket."""

    bucket: str


class IsEmpty(Struct, frozen=True, tag=True):
    """For the shards of a node: has none of them streams of the bucket? Revokes their permits."""

    bucket: str
    shards: list[int]


class Count(Struct, frozen=True, tag=True):
    bucket: str
    shards: list[int]


class Page(Struct, frozen=True, tag=True):
    bucket: str
    shards: list[int]
    prefix: str
    after: str
    limit: int


class MayHaveMoved(Struct, frozen=True, tag=True):
    """For this node: can you have taken a shard since this version of the map? Another one, to
    which a wrong URL led, cannot answer for it."""

    node_id: str
    version: int


OfShard = Permit | Revoke | Missing
OfNode = IsEmpty | Count | Page
Question = WhereIs | HasBucket | MayHaveMoved | OfShard | OfNode


class Shown(Struct, frozen=True):
    """A yes or no."""

    value: bool


class Number(Struct, frozen=True):
    value: int


class Names(Struct, frozen=True):
    names: list[str]


class Permitted(Struct, frozen=True):
    """`exists` if the stream is there, and needs no permit."""

    permit: int
    exists: bool


class Listed(Struct, frozen=True):
    """Names in order with their rows; a row is None if its stream has just ended."""

    names: list[str]
    rows: list[dict[str, object] | None]
    has_more: bool


Found = Shown | Number | Names | Permitted | Listed
