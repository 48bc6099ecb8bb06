"""Offset tokens: 16 digits, underscore, 16 digits; the second part is the byte position.

Fixed width makes string order equal position order. `NOW` depends on the stream's tail, so
callers resolve it before they parse.
"""

import re

from protocol.errors import ProtocolError

START = "-1"
NOW = "now"

# What any server may mint (DS 8): visible, without `, & = ? /`.
_ANY = re.compile(r"[!-%'-+\-.0-<>@-~]{1,255}")
_TOKEN = re.compile(r"[0-9]{16}_[0-9]{16}")


def format_offset(position: int) -> str:
    return "0000000000000000_" + str(position).zfill(16)


def parse_offset(token: str) -> int:
    """The byte position a token names; a non-zero first part lands beyond any real tail."""
    if _TOKEN.fullmatch(token):
        return int(token)  # int() skips the underscore: first * 10**16 + second
    if token == START:
        return 0
    raise ProtocolError(400, "invalid-offset", "The offset is not one of ours.")


def is_offset(token: str) -> bool:
    """Whether any server's offset can look like this, not only ours."""
    return _ANY.fullmatch(token) is not None
