"""Other paths by which streams may be asked for, where configured. They are turned into those of
`protocol.paths` before anything else looks at them, so nobody else knows that there are any.

  {prefix}{name}              /v1/stream/{name}; some clients have /v1/streams/ built in
  /{bucket}, /{bucket}/…      /ds/{bucket}, /ds/{bucket}/…; but where a page of ours is, that is it
"""

import re
from collections.abc import Callable, Sequence

from protocol.names import BUCKET_PREFIX, STREAM_PREFIX

Rename = Callable[[str], str]

PAGES = ("healthz", "readyz", "metrics", "console")

_PREFIX = re.compile(r"/(?:[A-Za-z0-9_~-][A-Za-z0-9._~-]*/)+")
_AT_ROOT = re.compile(rf"/(?!(?:{'|'.join(PAGES)})(?:/|\Z))[a-z0-9_-]{{4,64}}(?:/|\Z)")
_TAKEN = (STREAM_PREFIX, BUCKET_PREFIX, *(f"/{page}/" for page in PAGES))


def is_prefix(text: str) -> bool:
    """Whether it can stand for that of streams, and means nothing yet."""
    if text.startswith(_TAKEN) or STREAM_PREFIX.startswith(text):
        return False
    return _PREFIX.fullmatch(text) is not None


def make_rename(prefixes: Sequence[str], *, root_buckets: bool) -> Rename:
    """From a path as it came to the one that is meant."""
    others = tuple(sorted(prefixes, key=len, reverse=True))  # the longest that fits
    if not others and not root_buckets:
        return str  # of a text is that text

    def rename(path: str) -> str:
        if path.startswith(others):
            prefix = next(prefix for prefix in others if path.startswith(prefix))
            return STREAM_PREFIX + path[len(prefix) :]
        if root_buckets and _AT_ROOT.match(path):
            return BUCKET_PREFIX + path[1:]
        return path

    return rename
