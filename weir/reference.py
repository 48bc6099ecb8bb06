"""`make docs`: the reference of commands, settings, headers, metrics, log fields and error codes.

Everything is extracted from the code: the parser, configs/default.toml, metric registrations,
the log record class and problem responses. Only header descriptions are written here; a test
checks that none is missing.
"""

import argparse
import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from weir.cli import make_parser

ROOT = Path(__file__).resolve().parent.parent
HEADING = """\
# Reference

Generated from the code by `make docs`; `make check` fails if it is out of date. Do not edit.
"""
REQUEST, RESPONSE, BOTH, UPSTREAM = "request", "response", "both", "to the origin"
BETWEEN = "between origins"
ABOUT = "description"  # heading of every table's last column
HEADERS = {
    "Accept-Encoding": (REQUEST, "the gateway compresses cached responses with gzip or zstd"),
    "Access-Control-Allow-Headers": (RESPONSE, "for preflight requests"),
    "Access-Control-Allow-Methods": (RESPONSE, "for preflight requests"),
    "Access-Control-Allow-Origin": (RESPONSE, "from `http.cors_origins`"),
    "Access-Control-Expose-Headers": (RESPONSE, "headers that a page may read"),
    "Access-Control-Max-Age": (RESPONSE, "for preflight requests: one day"),
    "Age": (RESPONSE, "seconds since the gateway received the response from the origin"),
    "Allow": (RESPONSE, "the supported methods, on 405 and for OPTIONS"),
    "Authorization": (REQUEST, "`Bearer` and a token; see [Tokens](auth.md)"),
    "CDN-Cache-Control": (RESPONSE, "lifetime for a CDN, on public streams, if configured"),
    "Cache-Control": (RESPONSE, "how long it may be cached: immutable below the tail"),
    "Cache-Status": (RESPONSE, "where the response came from; see [Caching](caching.md)"),
    "Cache-Tag": (RESPONSE, "the stream's tag for a CDN, if named in `cdn.tag_header`"),
    "Connection": (BOTH, "`close` on the last response; headers it names are not forwarded"),
    "Content-Disposition": (RESPONSE, "forwarded from other origins"),
    "Content-Encoding": (BOTH, "of a cached response; request bodies must not be encoded"),
    "Content-Length": (BOTH, "length of the body"),
    "Content-Security-Policy": (RESPONSE, "`sandbox` on active content; console policy"),
    "Content-Type": (BOTH, "type of the stream, set by PUT; appends must match it"),
    "Cookie": (REQUEST, "a token, if `auth.cookie` names the cookie"),
    "Cross-Origin-Opener-Policy": (RESPONSE, "on console pages"),
    "Cross-Origin-Resource-Policy": (
        RESPONSE,
        "`cross-origin`; `same-origin` from an origin without `http.cors_origins`",
    ),
    "ETag": (
        RESPONSE,
        "HEAD and writes: `incarnation:tail`. Reads: `incarnation:start:end` from the origin, a "
        "digest of the response from the gateway, with `-gzip` or `-zstd` if compressed. "
        "It changes when the stream is closed, and never repeats after re-creation",
    ),
    "Expect": (REQUEST, "`100-continue` is confirmed once the head is accepted"),
    "Forwarded": (REQUEST, "reveals a proxy: the console then signs no tokens"),
    "Host": (
        REQUEST,
        "base of `Location`, unless `http.public_url` is set; an origin on loopback accepts only "
        "loopback names and `server.allowed_hosts`",
    ),
    "If-Match": (REQUEST, "on a write: 412 unless the stream still has this tag"),
    "If-None-Match": (REQUEST, "on a read: 304 if unchanged; on PUT, `*`: only if new"),
    "Last-Event-ID": (REQUEST, "the last offset of an `EventSource`; overrides `offset`"),
    "Location": (RESPONSE, "URL of the new resource"),
    "Origin": (REQUEST, "sent by browsers; the origin refuses any not in `http.cors_origins`"),
    "Producer-Epoch": (BOTH, "run of the producer; a later epoch fences off earlier ones"),
    "Producer-Expected-Seq": (RESPONSE, "on 409 after a gap: the expected number"),
    "Producer-Id": (REQUEST, "name of the producer; repeated appends are stored once"),
    "Producer-Received-Seq": (RESPONSE, "on 409 after a gap: the received number"),
    "Producer-Seq": (BOTH, "number of the append, from 0 in each epoch"),
    "Referrer-Policy": (RESPONSE, "on console pages"),
    "Retry-After": (RESPONSE, "seconds to wait, on 429 and 503"),
    "Sec-Fetch-Mode": (
        REQUEST,
        "sent by browsers; the origin refuses `no-cors`, unless `http.cors_origins` has `*`",
    ),
    "Sec-Fetch-Site": (REQUEST, "sent by browsers: the console signs tokens for its own page only"),
    "Server": (RESPONSE, "`weir`"),
    "Stream-Closed": (BOTH, "`true` on PUT or POST closes the stream; in a response: it is closed"),
    "Stream-Cursor": (RESPONSE, "on live reads; send it back as `cursor`"),
    "Stream-Earliest-Offset": (RESPONSE, "first readable offset of a trimmed stream"),
    "Stream-Expires-At": (BOTH, "expiry time of the stream, RFC 3339"),
    "Stream-Fork-Offset": (REQUEST, "offset at which to fork (default: the tail)"),
    "Stream-Fork-Sub-Offset": (REQUEST, "messages (JSON) or bytes after that offset to include"),
    "Stream-Forked-From": (REQUEST, "on PUT: the stream to fork"),
    "Stream-Next-Offset": (RESPONSE, "offset to continue from; the tail after an append"),
    "Stream-SSE-Data-Encoding": (RESPONSE, "`base64` if events carry bytes instead of text"),
    "Stream-Seq": (REQUEST, "on an append: must increase, compared as text"),
    "Stream-Snapshot-Offset": (RESPONSE, "the snapshot covers everything below this offset"),
    "Stream-State": (BOTH, "`strict` on PUT: only State messages are accepted"),
    "Stream-TTL": (BOTH, "seconds without a read or write until the stream expires"),
    "Stream-Up-To-Date": (RESPONSE, "`true` if the response reaches the tail"),
    "Surrogate-Key": (RESPONSE, "the stream's tag for a CDN, if named in `cdn.tag_header`"),
    "Transfer-Encoding": (BOTH, "`chunked` if the length is not known in advance"),
    "User-Agent": (REQUEST, "recorded in the access log"),
    "Vary": (RESPONSE, "what the response depends on: token, encoding, browser origin"),
    "Via": (REQUEST, "reveals a proxy: the console then signs no tokens"),
    "WWW-Authenticate": (RESPONSE, "on 401 and 403: what is wrong with the token"),
    "Weir-Access-Key": (UPSTREAM, "identifies gateways to the origin: `server.access_key`"),
    "Weir-Grant": (BETWEEN, "what a shard permitted for a creation, or `revoked`"),
    "Weir-Hop": (BETWEEN, "how many nodes a request has passed; at most 2"),
    "Weir-Host": (BETWEEN, "the `Host` that the client sent to the first node"),
    "Weir-Map": (RESPONSE, "of a node that forwarded a request: the version of its cluster's map"),
    "Weir-Mint": (REQUEST, "sent by the console: the secret of this `weir up` run"),
    "Weir-Routing": (
        REQUEST,
        "`redirect`: an origin that does not own the stream sends 307 instead of passing it on",
    ),
    "Weir-Scheme": (BETWEEN, "the scheme by which the client reached the first node"),
    "Weir-Shard": (BETWEEN, "the shard that a request is for"),
    "X-Accel-Buffering": (RESPONSE, "`no` on event streams: proxies must not buffer them"),
    "X-Content-Type-Options": (RESPONSE, "`nosniff`"),
    "X-Forwarded-For": (REQUEST, "the client's address, behind `gateway.trusted_hops` proxies"),
    "X-Forwarded-Host": (REQUEST, "reveals a proxy: the console then signs no tokens"),
    "X-Forwarded-Proto": (REQUEST, "the scheme of `Location`, behind trusted proxies"),
    "X-Frame-Options": (RESPONSE, "on console pages"),
    "X-JWT-Sub": (UPSTREAM, "`sub` of the token; dropped if a client sends it"),
    "X-Real-IP": (REQUEST, "reveals a proxy: the console then signs no tokens"),
    "X-Request-Id": (BOTH, "taken from the request if valid, else generated; logged"),
}
METRIC_CALLS = {
    "counter": "counter",
    "labelled_counter": "counter",
    "gauge": "gauge",
    "labelled_gauge": "gauge",
    "gauge_text": "gauge",
}

_SETTING = re.compile(r"^(\w+) = (.+?)(?:\s+# (.*))?$")
_FIELD = re.compile(r"^    (\w+): ([\w.]+)(?: = [^#]+?)?(?:  # (.*))?$")


def render() -> str:
    parts = (commands(), settings(), headers(), metrics(), log_fields(), codes())
    return "\n".join([HEADING, *parts])


def commands() -> str:
    lines = ["## Commands", ""]
    for parser in _subparsers(make_parser()):
        lines += [f"### {parser.prog}", "", parser.description or "", ""]
        rows = [_argument(action) for action in parser._actions if action.dest != "help"]
        lines += [*_table(("argument", ABOUT), rows), ""] if rows else []
    return "\n".join(lines)


def _subparsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Commands, or the actions of those that have some."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from list(_subparsers(command)) or [command]


def _argument(action: argparse.Action) -> tuple[str, str]:
    value = ""
    if action.nargs != 0:
        value = str(action.metavar or action.dest.upper().replace("_", "-"))
    if not action.option_strings:
        optional = " (optional)" if action.nargs in ("?", "*") else ""
        return f"`{value}`{optional}", action.help or ""
    names = ", ".join(f"`{name}{' ' + value if value else ''}`" for name in action.option_strings)
    return names, (action.help or "") + (" (required)" if action.required else "")


def settings() -> str:
    about = "As an environment variable, `port` in `[server]` is `DS_SERVER__PORT`."
    lines = ["## Settings", "", about, ""]
    section, rows = "", list[tuple[str, ...]]()
    for line in (ROOT / "configs/default.toml").read_text().splitlines():
        if line.startswith("["):
            lines += _settings_of(section, rows)
            section, rows = line.strip("[]"), []
        elif found := _SETTING.match(line):
            rows.append((f"`{found[1]}`", f"`{found[2]}`", found[3] or ""))
    return "\n".join([*lines, *_settings_of(section, rows)])


def _settings_of(section: str, rows: Sequence[tuple[str, ...]]) -> list[str]:
    return [f"### {section}", "", *_table(("key", "default", ABOUT), rows), ""] if rows else []


def headers() -> str:
    rows = [(f"`{name}`", where, about) for name, (where, about) in sorted(HEADERS.items())]
    return "\n".join(["## Headers", "", *_table(("header", "in", ABOUT), rows), ""])


def metrics() -> str:
    rows = [("`weir_gateway_request_seconds`", "histogram", "Request duration, by mode.")]
    rows += [
        (f"`weir_{service}_requests_total`", "counter", f"Requests by {labels}.")
        for service, labels in (
            ("gateway", "mode, verdict and status"),
            ("origin", "method and status"),
        )
    ]
    for service in ("gateway", "origin"):
        for path in (*_sources(service), ROOT / f"weir/commands/{service}.py"):
            rows += _metrics_in(path, f"weir_{service}_")
    return "\n".join(["## Metrics", "", *_table(("name", "type", ABOUT), sorted(set(rows))), ""])


def _metrics_in(path: Path, prefix: str) -> Iterator[tuple[str, str, str]]:
    for call, name in _calls(path):
        texts = _texts(call)
        if name in METRIC_CALLS and len(texts) == 2:
            kind = METRIC_CALLS[name]
            ending = "_total" if kind == "counter" else ""
            yield f"`{prefix}{texts[0].removeprefix(prefix)}{ending}`", kind, texts[1]
        elif name == "count" and prefix == "weir_gateway_" and texts and not call.args[1:]:
            labels = ", ".join(keyword.arg for keyword in call.keywords if keyword.arg)
            about = texts[0].replace("_", " ").capitalize() + (f", by {labels}." if labels else ".")
            yield f"`{prefix}{texts[0]}_total`", "counter", about


def log_fields() -> str:
    source = (ROOT / "protocol/accesslog.py").read_text()
    body = source.partition("class AccessRecord")[2].partition("\n\n\n")[0]
    rows = [
        (f"`{found[1]}`", found[2], found[3] or "")
        for line in body.splitlines()
        if (found := _FIELD.match(line))
    ]
    return "\n".join(["## Access log fields", "", *_table(("field", "type", ABOUT), rows), ""])


def codes() -> str:
    """Codes of problems (RFC 9457): the last part of `type`, with all its texts."""
    found: dict[str, tuple[set[int], dict[str, None]]] = {}
    for package in ("protocol", "origin", "gateway", "wire"):
        for path in _sources(package):
            for status, code, abouts in _problems_in(path):
                statuses, known = found.setdefault(code, (set(), {}))
                statuses.add(status)
                known.update(dict.fromkeys(abouts))
    rows = [
        (f"`{code}`", ", ".join(map(str, sorted(statuses))), " / ".join(known))
        for code, (statuses, known) in sorted(found.items())
    ]
    return "\n".join(["## Error codes", "", *_table(("code", "status", ABOUT), rows)]) + "\n"


def _problems_in(path: Path) -> Iterator[tuple[int, str, list[str]]]:
    """A status followed by a code, in a call or a tuple; the text may follow."""
    tree = ast.parse(path.read_bytes())
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    named = {**_imported(tree.body), **_assigned(tree.body)}
    for scope in (tree, *functions):
        known = named if scope is tree else {**named, **_assigned(ast.walk(scope))}
        for node in ast.walk(scope):
            values = node.args if isinstance(node, ast.Call) else getattr(node, "elts", [])
            for status, code, *rest in (values[at : at + 3] for at in range(len(values) - 1)):
                match status, _spoken(code, known):
                    case ast.Constant(value=int(number)), [word] if 400 <= number < 600:
                        yield number, word, _spoken(rest[0], known) if rest else []


def _imported(nodes: Iterable[ast.AST]) -> dict[str, list[str]]:
    """Texts that a module imports from our other modules."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            path = ROOT / f"{node.module.replace('.', '/')}.py"
            if path.exists():
                theirs = _assigned(ast.parse(path.read_bytes()).body)
                found |= {
                    each.name: theirs[each.name] for each in node.names if each.name in theirs
                }
    return found


def _assigned(nodes: Iterable[ast.AST]) -> dict[str, list[str]]:
    """Texts assigned to variables, by name."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found.setdefault(name, []).extend(_spoken(value, {}))
    return found


def _spoken(text: ast.expr, known: Mapping[str, list[str]]) -> list[str]:
    """A text with … for placeholders, or the possible texts of a variable."""
    match text:
        case ast.Constant(value=str(words)) if words:
            return [words]
        case ast.JoinedStr(values=parts):
            return ["".join("".join(_spoken(part, {})) or "…" for part in parts)]
        case ast.Name(id=name):
            return known.get(name, [])
    return []


def _sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def _calls(path: Path) -> Iterator[tuple[ast.Call, str]]:
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Call):
            called = node.func
            yield node, called.attr if isinstance(called, ast.Attribute) else ast.unparse(called)


def _texts(call: ast.Call) -> list[str]:
    return [
        argument.value
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *escaped)]


def main() -> int:
    path = ROOT / "docs/reference.md"
    text = render()
    if "--check" not in sys.argv:
        path.write_text(text)
    elif not path.exists() or path.read_text() != text:
        print("docs/reference.md is out of date: run `make docs`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
