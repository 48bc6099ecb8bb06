"""Secrets that two of our processes share."""

import hmac


def is_secret(given: str, secret: str) -> bool:
    """Whether they are equal, compared in constant time."""
    # As bytes: non-ASCII text cannot be compared in constant time.
    return hmac.compare_digest(given.encode(errors="backslashreplace"), secret.encode())
