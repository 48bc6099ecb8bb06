"""Where a request carries its token: `Authorization` or, if configured, a cookie or the query.

Only one place may carry one. The token is removed from the query that is used for the cache key,
the origin and the log, however its parameter is spelled.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from gateway.rules.challenges import ambiguous_token, invalid_token
from protocol.requests import query_pairs

if TYPE_CHECKING:  # only a value here; nothing is read from files
    from gateway.config import AuthConfig

_TOKEN = re.compile(r"[\w-]++\.[\w-]++\.[\w-]++", re.ASCII)  # a JWS in compact form


class Found(NamedTuple):
    token: str | None
    query: str  # without the token


def find_token(
    headers: Mapping[str, str], query: str, auth: "AuthConfig", *, repeated: bool = False
) -> Found:
    """The request's token, if it has one; raises AuthError if it is ambiguous.

    `headers` have lower-case names; `repeated` means that Authorization occurs more than once.
    """
    if repeated:
        raise ambiguous_token()
    values = _from_authorization(headers.get("authorization", ""))
    if auth.cookie and "cookie" in headers:
        values += _from_cookies(headers["cookie"], auth.cookie)
    if auth.query_parameter and query:
        query, found = _from_query(query, auth.query_parameter)
        values += found
    if len(values) > 1:
        raise ambiguous_token()
    return Found(_checked(values[0], auth.max_token_bytes) if values else None, query)


def without_token(query: str, auth: "AuthConfig") -> str:
    """The query without any token."""
    return _from_query(query, auth.query_parameter)[0] if auth.query_parameter and query else query


def _from_authorization(value: str) -> list[str]:
    """Other schemes carry no token: a proxy in front may use them for its own purposes."""
    scheme, _, rest = value.partition(" ")
    return [rest.lstrip(" ")] if scheme.lower() == "bearer" else []


def _from_cookies(header: str, name: str) -> list[str]:
    pairs = (pair.strip(" \t").partition("=") for pair in header.split(";"))
    return [value for key, _, value in pairs if key == name]


def _from_query(query: str, name: str) -> tuple[str, list[str]]:
    """(the query without the parameter, its values)"""
    kept, values = [], []
    for pair in query_pairs(query):
        key, _, value = pair.partition("=")
        if unquote(key) == name:
            values.append(value)
        else:
            kept.append(pair)
    return "&".join(kept), values


def _checked(token: str, max_bytes: int) -> str:
    if len(token) > max_bytes:
        raise invalid_token("too-large")
    if not _TOKEN.fullmatch(token):
        raise invalid_token("malformed")
    return token
