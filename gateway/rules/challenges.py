"""How a refusal for want of a token or scope looks to the client.

Every token that is not good gets the same answer, whatever is wrong with it: the reason is for our
metrics and log, never for the client. Nothing of the token is repeated.
"""

from typing import Literal

from gateway.rules.access import Action, scope_name
from protocol.errors import ProtocolError
from protocol.replies import RETRY_AFTER, Headers

Reason = Literal[
    "missing",  # no token where one may be
    "malformed",  # not a JWT that we would verify, whoever signed it
    "ambiguous",  # more than one token
    "too-large",
    "algorithm",  # not allowed, or not that of the key
    "unknown-key",
    "bad-signature",
    "expired",
    "not-yet-valid",
    "wrong-issuer",
    "wrong-audience",
    "wrong-type",
    "claims",  # signed, but a claim is missing or not what we take
    "revoked",
    "scope",
    "keys-unavailable",
]

REALM = 'Bearer realm="weir"'
MAX_SCOPE_CHARACTERS = 512


class AuthError(ProtocolError):
    """A refusal; `protocol.replies.problem_of` makes the answer, `reason` labels the metric."""

    def __init__(
        self, reason: Reason, status: int, code: str, detail: str, headers: Headers
    ) -> None:
        super().__init__(status, code, detail, headers)
        self.reason: Reason = reason


def missing_token() -> AuthError:
    """No `error` attribute: the client may not have known that a token is needed (RFC 6750 3.1)."""
    detail = "This needs a token: Authorization: Bearer."
    return AuthError("missing", 401, "token-required", detail, _challenge(REALM))


def invalid_token(reason: Reason) -> AuthError:
    headers = _challenge(f'{REALM}, error="invalid_token"')
    return AuthError(reason, 401, "invalid-token", "The token is not valid.", headers)


def ambiguous_token() -> AuthError:
    """401 where RFC 6750 suggests 400, as the proxies in front of us answer."""
    headers = _challenge(f'{REALM}, error="invalid_request"')
    detail = "A request brings one token, in one place."
    return AuthError("ambiguous", 401, "ambiguous-token", detail, headers)


def missing_scope(action: Action, name: str) -> AuthError:
    """403 that names the scope which would do, unless the name is too long for a header."""
    challenge = f'{REALM}, error="insufficient_scope"'
    scope = scope_name(action, name)
    if len(scope) > MAX_SCOPE_CHARACTERS:
        detail = f"The token does not allow to {action} this stream."
    else:
        detail = f"The token lacks the scope {scope}"
        challenge += f', scope="{scope}"'
    return AuthError("scope", 403, "insufficient-scope", detail, _challenge(challenge))


def keys_unavailable() -> AuthError:
    detail = "Tokens cannot be checked yet: no keys could be fetched."
    return AuthError("keys-unavailable", 503, "keys-unavailable", detail, RETRY_AFTER)


def _challenge(value: str) -> Headers:
    return (("WWW-Authenticate", value),)
