"""Builds the door and everything around it, and the port that leads to it."""

import secrets
from itertools import count

from gateway.admin import Overview
from gateway.admission import Admissions
from gateway.answers import Answers
from gateway.cache import Cache
from gateway.catchup import CatchUp
from gateway.config import GatewayConfig
from gateway.console.minting import MintKey
from gateway.console.service import Console
from gateway.door import Door
from gateway.guard import Guard
from gateway.handlers import Handlers
from gateway.hits import Hits
from gateway.hubs import Hubs
from gateway.passes import Passes
from gateway.service import ServicePages
from gateway.tokens import Tokens
from gateway.upstream import Upstream
from wire.front import FrontServer
from wire.http import Refusals, Stamp
from wire.listening import Listener
from wire.tls import server_context


class Entrance:
    def __init__(
        self,
        config: GatewayConfig,
        tokens: Tokens | None,
        upstream: Upstream,
        cache: Cache,
        hubs: Hubs,
        passes: Passes,
        answers: Answers,
        overview: Overview | None = None,
        mint_key: MintKey | None = None,
        id_prefix: str = "",
    ) -> None:
        """Without an overview there is no console."""
        prefix, numbers = id_prefix or f"{secrets.token_hex(4)}-", count(1)

        def next_id() -> str:
            return f"{prefix}{next(numbers):x}"

        guard = Guard(config, tokens)
        self.admissions = Admissions(config)
        console = None
        if overview is not None and config.gateway.console:
            figures, streams = overview.all_figures, overview.all_streams
            console = Console(config.auth, figures, streams, mint_key)
        self.pages = ServicePages(guard, upstream, self.admissions, answers, console)
        catchup = CatchUp(config.cache, cache, passes, answers)
        hits = Hits(config, tokens, self.admissions, cache, catchup.forms, answers, next_id)
        self.door = Door(
            guard, self.admissions, self.pages, hits.answer, catchup, hubs, passes, answers, next_id
        )
        self._config = config

    def make_listener(self) -> Listener:
        """The port that leads to the door. Needs a running loop."""
        serving, rename = self._config.gateway, self._config.http.rename
        certificate = serving.tls_cert_path, serving.tls_key_path
        server = FrontServer(
            Handlers(serving, self.door, rename).handle,
            self.door,
            serving,
            Refusals(Stamp(self._config.cors_origins)),
            rename,
            tls=server_context("gateway.tls_cert_path", *certificate),
        )
        return Listener(server, serving.drain_secs)
