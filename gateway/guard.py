"""Authentication and authorisation: the token, the route and the scopes of a request."""

import time
from dataclasses import replace
from typing import cast

from gateway.config import GatewayConfig
from gateway.rules.access import ANYONE, Action, Principal, Scopes, listing_name
from gateway.rules.challenges import missing_scope, missing_token
from gateway.rules.credentials import find_token, without_token
from gateway.rules.routes import Route, is_open, parse_route, resume
from gateway.tokens import Tokens
from protocol.errors import ProtocolError
from protocol.names import is_true
from protocol.paths import Kind, parse_path, stream_url
from wire.heads import Head


class Guard:
    """`tokens` is None if authentication is off. All methods may raise ProtocolError."""

    def __init__(self, config: GatewayConfig, tokens: Tokens | None) -> None:
        self._auth = config.auth
        self._rename = config.http.rename
        self._max_path_bytes = config.gateway.max_path_bytes
        self._forwards_tokens = config.upstream.forward_token
        self._tokens = tokens

    @property
    def ready(self) -> bool:
        return self._tokens is None or self._tokens.ready

    def read_head(self, head: Head, *, repeated: bool) -> tuple[str | None, Route]:
        """Its token, if it has one, and its route."""
        if self._tokens is None or is_open(head.method, head.path):  # no token of ours
            token, query = _bearer(head), without_token(head.query, self._auth)
        else:
            token, query = find_token(head.headers, head.query, self._auth, repeated=repeated)
        route = parse_route(head.method, head.path, query, self._max_path_bytes)
        assert route is not None
        if route.mode == "sse" and "last-event-id" in head.headers:
            route = resume(route, head.headers["last-event-id"])
        elif route.mode == "append" and not head.content_length:
            if is_true(head.headers.get("stream-closed")):
                route = replace(route, mode="close")
        return token, route

    def forwarded(self, head: Head, token: str | None) -> str | None:
        """The token to forward with the request; empty if it has none."""
        if is_open(head.method, head.path):
            return token if head.method == "POST" else None
        return (token or "") if self._forwards_tokens else None

    def recognise(self, head: Head, token: str | None) -> Principal | None:
        """The principal, if it is known without any lookup."""
        if self._tokens is None or is_open(head.method, head.path):
            return ANYONE
        if token is None:
            raise missing_token()
        return self._tokens.known(token, time.time())

    async def verify(self, head: Head, token: str | None) -> Principal:
        if self._tokens is None or is_open(head.method, head.path):
            return ANYONE
        if token is None:
            raise missing_token()
        return await self._tokens.verify(token, time.time())

    async def identify(self, head: Head, *, repeated: bool) -> Principal:
        """The principal of a request that concerns no stream."""
        if self._tokens is None:
            return ANYONE
        token, _ = find_token(head.headers, head.query, self._auth, repeated=repeated)
        return await self.verify(head, token)

    def authorise(self, head: Head, route: Route, principal: Principal) -> str:
        """Returns the source of a fork, as it is spelled upstream."""
        if is_open(head.method, head.path):
            return ""
        _check_scope(principal.scopes, route)
        source = head.headers.get("stream-forked-from")
        if route.mode != "create" or source is None:
            return ""
        name = self._fork_source(source)
        if not principal.scopes.allows("read", name):
            raise missing_scope("read", name)
        return stream_url(name)

    def _fork_source(self, source: str) -> str:
        """A fork copies its source, so it requires permission to read it (DS 4.2)."""
        named = parse_path(self._rename(source), self._max_path_bytes)
        if named is None or named.kind is not Kind.STREAM:
            text = "Stream-Forked-From must be a stream path."
            raise ProtocolError(400, "invalid-fork-source", text)
        return named.name


def _check_scope(scopes: Scopes, route: Route) -> None:
    """Sub-resources of a stream need the scopes of the stream."""
    action, name = cast(Action, route.action), route.stream
    if route.lists:
        if not scopes.allows_listing(name):
            raise missing_scope("read", listing_name(name))
    elif not scopes.allows(action, name):
        raise missing_scope(action, name)


def _bearer(head: Head) -> str | None:
    """A bearer token of any form, not parsed."""
    scheme, _, token = head.headers.get("authorization", "").partition(" ")
    return token if scheme.lower() == "bearer" else None
