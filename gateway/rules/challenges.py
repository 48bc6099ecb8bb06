"""Responses to requests whose token or scope is missing or invalid.

Every invalid token gets the same response, whatever is wrong with it. The reason goes to metrics
and logs, never to the client. Nothing of the token is echoed.
"""

from typing import Literal

from gateway.rules.access import Action, scope_name
from protocol.errors import ProtocolError
from protocol.replies import RETRY_AFTER, Headers

Reason = Literal[
    "missing",  # no token found
    "malformed",  # not a JWT that we could verify
    "ambiguous",  # more than one token
    "too-large",
    "algorithm",  # not allowed, or not the key's
    "unknown-key",
    "bad-signature",
    "expired",
    "not-yet-valid",
    "wrong-issuer",
    "wrong-audience",
    "wrong-type",
    "claims",  # valid signature, but a claim is missing or not accepted
    "revoked",
    "scope",
    "keys-unavailable",
]

REALM = 'Bearer realm="weir"'
MAX_SCOPE_CHARACTERS = 512


class AuthError(ProtocolError):
    """A refusal; `protocol.replies.problem_of` makes the response, `reason` labels the metric."""

    def __init__(
        self, reason: Reason, status: int, code: str, detail: str, headers: Headers
    ) -> None:
        super().__init__(status, code, detail, headers)
        self.reason: Reason = reason


def missing_token() -> AuthError:
    """No `error` attribute: the client may not have known that a token is needed (RFC 6750 3.1)."""
    detail = "A token is required: Authorization: Bearer."
    return AuthError("missing", 401, "token-required", detail, _challenge(REALM))


def invalid_token(reason: Reason) -> AuthError:
    headers = _challenge(f'{REALM}, error="invalid_token"')
    return AuthError(reason, 401, "invalid-token", "The token is not valid.", headers)


def ambiguous_token() -> AuthError:
    """401 where RFC 6750 suggests 400, like the proxies in front of us."""
    headers = _challenge(f'{REALM}, error="invalid_request"')
    detail = "Send exactly one token, in one place."
    return AuthError("ambiguous", 401, "ambiguous-token", detail, headers)


def missing_scope(action: Action, name: str) -> AuthError:
    """403 that names the required scope, unless it is too long for a header."""
    challenge = f'{REALM}, error="insufficient_scope"'
    scope = scope_name(action, name)
    if len(scope) > MAX_SCOPE_CHARACTERS:
        detail = f"The token does not grant {action} on this stream."
    else:
        detail = f"The token lacks the scope {scope}"
        challenge += f', scope="{scope}"'
    return AuthError("scope", 403, "insufficient-scope", detail, _challenge(challenge))


def keys_unavailable() -> AuthError:
    detail = "Tokens cannot be verified yet: the keys could not be fetched."
    return AuthError("keys-unavailable", 503, "keys-unavailable", detail, RETRY_AFTER)


def _challenge(value: str) -> Headers:
    return (("WWW-Authenticate", value),)
