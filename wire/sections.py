"""Sections of the configuration that both services read."""

import re
from dataclasses import dataclass

from protocol.paths import Rename, is_prefix, make_rename
from wire.settings import check, check_choice

AUTO = "auto"
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")


@dataclass(frozen=True, slots=True)
class HttpConfig:
    cors_origins: tuple[str, ...] = (AUTO,)
    public_url: str = ""
    stream_prefixes: tuple[str, ...] = ()  # aliases of /v1/stream/
    root_buckets: bool = False  # whether /{bucket} is an alias of /ds/{bucket}

    def __post_init__(self) -> None:
        for origin in self.cors_origins if self.cors_origins != (AUTO,) else ():
            ok = origin in ("*", "null") or re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/\s]+", origin)
            check(
                bool(ok), "cors_origins", f"{origin!r} is not auto, *, null or scheme://host[:port]"
            )
        # A trailing slash would be doubled in Location.
        object.__setattr__(self, "public_url", self.public_url.rstrip("/"))
        ok = self.public_url == "" or re.fullmatch(r"https?://[!-~]+", self.public_url)
        check(bool(ok), "public_url", f"{self.public_url!r} is not an http or https URL")
        for prefix in self.stream_prefixes:
            text = f"{prefix!r} is taken, or not like /v1/streams/"
            check(is_prefix(prefix), "stream_prefixes", text)

    @property
    def rename(self) -> Rename:
        """From a requested path to the canonical one."""
        return make_rename(self.stream_prefixes, root_buckets=self.root_buckets)

    def origins(self, usual: tuple[str, ...]) -> tuple[str, ...]:
        """Origins of pages that may use a service; `auto` is the service's default."""
        return usual if self.cors_origins == (AUTO,) else self.cors_origins


@dataclass(frozen=True, slots=True)
class LogConfig:
    level: str = "info"
    format: str = "text"

    def __post_init__(self) -> None:
        check_choice(self, "level", LOG_LEVELS)
        check_choice(self, "format", LOG_FORMATS)
