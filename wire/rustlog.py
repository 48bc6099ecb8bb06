"""`RUST_LOG` and `DS_LOG__RUST_LOG`, the log settings of other servers of the protocol, mapped to
our `DS_LOG__LEVEL`.

A filter is a list such as `info,durable_streams=debug`: a default level, and levels for parts of a
program. Levels for our parts take precedence; other parts are ignored. The variable may be meant
for other programs, so nothing in it is an error.
"""

from collections.abc import Mapping

LEVEL = "DS_LOG__LEVEL"
VARIABLES = ("RUST_LOG", "DS_LOG__RUST_LOG")  # the first one set is used
PARTS = ("weir", "durable_streams")
LEVELS = {
    "trace": "debug",
    "debug": "debug",
    "info": "info",
    "warn": "warning",
    "warning": "warning",
    "error": "error",
    "off": "error",
}


def with_level(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment with our level variable; an explicit level is kept."""
    own = {name: value for name, value in environ.items() if name not in VARIABLES}
    given = next((environ[name] for name in VARIABLES if environ.get(name)), "")
    level = level_of(given)
    return {LEVEL: level, **own} if level else own


def level_of(text: str) -> str:
    """The level of a filter, in our terms; empty if it has none for us."""
    everything, ours = "", ""
    for directive in text.lower().split(","):
        part, equals, level = directive.strip().rpartition("=")
        if not equals:
            everything = LEVELS.get(level, everything)
        elif part.startswith(PARTS):
            ours = LEVELS.get(level, ours)
    return ours or everything
