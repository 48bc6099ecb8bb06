"""Secrets that two of our processes share."""

import hmac


def is_secret(given: str, secret: str) -> bool:
    """Whether they are equal, in a time that does not tell how much of them is."""
    # As bytes: text that is not ASCII cannot be compared in constant time.
    return hmac.compare_digest(given.encode(errors="backslashreplace"), secret.encode())
