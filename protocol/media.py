"""Media types: comparing content types, and which of them are text."""

from functools import lru_cache


@lru_cache(maxsize=1024)
def media_type(content_type: str) -> str:
    """Type and subtype only, lower case."""
    return content_type.partition(";")[0].strip().lower()


def text_like(content_type: str) -> bool:
    """Whether SSE data events carry the bytes as text; all other types go as base64 (DS 5.8)."""
    media = media_type(content_type)
    return media.startswith("text/") or media == "application/json"
