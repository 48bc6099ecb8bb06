"""`RUST_LOG` and `DS_LOG__RUST_LOG`, by which other servers of the protocol are told how much to
say, as our `DS_LOG__LEVEL`.

A filter is a list as `info,durable_streams=debug`: a level for everything, and levels for parts of
a program. What is said of our parts counts first; other programs' parts are nothing to us. The
variable may be there for their sake, so nothing in it is an error.
"""

from collections.abc import Mapping

LEVEL = "DS_LOG__LEVEL"
VARIABLES = ("RUST_LOG", "DS_LOG__RUST_LOG")  # the first that is set counts
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
    """The variables in our own words; a level that was set in them stays."""
    own = {name: value for name, value in environ.items() if name not in VARIABLES}
    given = next((environ[name] for name in VARIABLES if environ.get(name)), "")
    level = level_of(given)
    return {LEVEL: level, **own} if level else own


def level_of(text: str) -> str:
    """Of a filter, in our words; empty where it says nothing to us."""
    everything, ours = "", ""
    for directive in text.lower().split(","):
        part, equals, level = directive.strip().rpartition("=")
        if not equals:
            everything = LEVELS.get(level, everything)
        elif part.startswith(PARTS):
            ours = LEVELS.get(level, ours)
    return ours or everything
