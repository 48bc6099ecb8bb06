"""Every runnable piece of the documents is run in its order, and prints what the document shows.

Both servers are started as `make run` starts them, on ports that are free.
"""

import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gateway.config import AuthConfig
from gateway.config import load_config as load_gateway_config
from gateway.devkeys import ensure_dev_key
from gateway.jwks import Keys, source_of
from gateway.rules.access import Principal
from gateway.tokens import Tokens
from loadtest.demo import make_tokens
from origin.config import load_config as load_origin_config
from tests.conformance.runner import Node, find_node, install_packages
from tests.docs.session import Session
from tests.docs.snippets import (
    DOCUMENTS,
    LANGUAGES,
    ROOT,
    Exchange,
    Snippet,
    agrees,
    all_snippets,
    exchanges_of,
    masked,
    snippets_of,
    unknown_in,
)
from tests.helpers.require import need

READY = re.compile(r"weir (origin|gateway admin|gateway) \D*(http://127\.0\.0\.1:\d+)")
PORTS = {"origin": 4437, "gateway": 8080, "gateway admin": 9090}
PROGRAMS = ("curl", "openssl")
SESSIONS = [
    path for path in DOCUMENTS if any(s.language in ("console", "js") for s in snippets_of(path))
]
LAST_OF_WELCOME = "?offset=-1"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a newcomer sits: a checkout with both servers running, and what `make run` said."""

    folder: Path
    welcome: str

    @property
    def urls(self) -> dict[str, str]:
        return dict(READY.findall(self.welcome))

    def translate(self, command: str) -> str:
        """The same command for the ports that are free here."""
        for name, port in PORTS.items():
            address = self.urls[name].removeprefix("http://")
            command = re.sub(rf"(?:localhost|127\.0\.0\.1):{port}\b", address, command)
        return command

    def steps_of(self, snippet: Snippet, node: Node | None) -> list[Exchange]:
        """Of a session its commands; of a script that it runs as a module of its own."""
        if snippet.language == "console":
            return [
                replace(step, command=self.translate(step.command))
                for step in exchanges_of(snippet.text)
            ]
        assert node is not None
        module = self.folder / f"{snippet.document.stem}-{snippet.line}.mjs"
        token = make_tokens(self.folder, 1)[0]
        given = [f"const base = {self.urls['gateway']!r}", f"const token = () => {token!r}"]
        module.write_text("\n".join([*given, snippet.text]))
        return [Exchange(shlex.join([node.node, module.name]), "...")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("newcomer")
    (folder / ".venv").symlink_to(Path(sys.executable).parent.parent)
    process = subprocess.Popen(
        [*command_behind(started_by("README.md")), "--port", "0", "--origin-port", "0"],
        cwd=folder,
        env={**os.environ, "DS_GATEWAY__ADMIN_PORT": "0"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        welcome = ""
        for line in process.stdout:
            welcome += line
            if LAST_OF_WELCOME in line:
                break
        yield Place(folder, welcome)
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def started_by(document: str) -> list[str]:
    """The first command that a newcomer is told to type."""
    found = re.search(r"^    (make .+)$", (ROOT / document).read_text("utf-8"), re.MULTILINE)
    assert found is not None
    return shlex.split(found[1])


def command_behind(make: list[str]) -> list[str]:
    """What this calls once everything is installed."""
    ours = ("MAKEFLAGS", "ARGS")  # of the `make test` that runs this
    env = {name: value for name, value in os.environ.items() if name not in ours}
    command = [*make, "--dry-run", "--no-print-directory"]
    told = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    return shlex.split(told.stdout.splitlines()[-1])


def test_both_ways_in_begin_with_the_same_command() -> None:
    assert started_by("README.md") == started_by("docs/quickstart.md") == ["make", "run"]


@pytest.mark.parametrize("path", SESSIONS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_session_prints_what_the_document_shows(path: Path, place: Place) -> None:
    snippets = [one for one in snippets_of(path) if one.language in ("console", "js")]
    for program in PROGRAMS:
        used = any(program in one.text for one in snippets if one.language == "console")
        need(not used or shutil.which(program), f"{program} is not installed")
    node = prepare_node(place) if any(one.language == "js" for one in snippets) else None
    with Session(place.folder) as session:
        for snippet in snippets:
            for step in place.steps_of(snippet, node):
                session.type(step)


def prepare_node(place: Place) -> Node:
    node = find_node()
    need(node, "Node is not installed")
    assert node is not None
    clients, link = ROOT / "tests/clients", place.folder / "node_modules"
    install_packages(node, clients)
    if not link.exists():
        link.symlink_to(clients / "node_modules")
    return node


def test_the_console_opens_where_make_run_says(place: Place) -> None:
    found = re.search(r"^Open the console: (http\S+/console/)#mint=(\S+)$", place.welcome, re.M)
    assert found is not None, place.welcome
    with urllib.request.urlopen(found[1]) as page:
        assert page.status == 200 and b"<title>" in page.read()
    gateway = place.urls["gateway"]
    headers = {"Weir-Mint": found[2], "Origin": gateway, "Content-Type": "application/json"}
    wish = json.dumps({"scope": "read:*"}).encode()
    asked = urllib.request.Request(f"{found[1]}token", wish, headers)
    with urllib.request.urlopen(asked) as answer:
        assert json.load(answer)["token"].startswith("eyJ")


def test_the_ports_in_the_documents_are_the_defaults() -> None:
    tables = tomllib.loads((ROOT / "configs/default.toml").read_text())
    serving = tables["gateway"]
    assert PORTS == {
        "origin": tables["server"]["port"],
        "gateway": serving["port"],
        "gateway admin": serving["admin_port"],
    }


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_that_looks_run_escapes(path: Path) -> None:
    assert not unknown_in(path.read_text("utf-8"))


def test_python_is_where_it_is_run() -> None:
    assert {one.document.name for one in all_snippets("python")} == {"analytics.md"}


def test_what_no_test_runs_is_found() -> None:
    text = "```sh\nls\n```\n\n    $ ls\n\n```\nplain\n```\n\n```toml\n    $ in a fence\n```\n"
    assert unknown_in(text) == ["```sh", "    $ ls", "```"]
    assert "console" in LANGUAGES


@pytest.mark.parametrize("snippet", all_snippets("toml"), ids=lambda one: one.id)
def test_settings_are_understood(snippet: Snippet, tmp_path: Path) -> None:
    path = tmp_path / "snippet.toml"
    path.write_text(snippet.text)
    keys = {"DS_AUTH__JWKS": "keys.json"}  # a gateway has no default for these
    load_gateway_config({}, keys, config_file=str(path))
    load_origin_config({}, {}, config_file=str(path))


def test_a_backends_token_is_what_its_gateway_takes(tmp_path: Path) -> None:
    """The signer in Node and the settings below it in docs/auth.md, together."""
    node = find_node()
    need(node, "Node is not installed")
    assert node is not None
    signer, config = list(snippets_of(ROOT / "docs/auth.md"))[-2:]
    key, _ = ensure_dev_key(tmp_path)
    key.rename(tmp_path / "signing.pem")
    (tmp_path / "signer.mjs").write_text(signer.text)
    (tmp_path / "local.toml").write_text(config.text)
    script = 'import("./signer.mjs").then((it) => console.log(it.tokenFor(process.argv[1])))'
    told = subprocess.run(
        [node.node, "-e", script, "a*/b"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    auth = load_gateway_config({}, {}, config_file=str(tmp_path / "local.toml")).auth
    auth = replace(auth, jwks=str(tmp_path / "jwks.json"))
    principal = asyncio.run(verified(auth, told.stdout.strip()))
    assert principal.subject == "a*/b"
    assert principal.scopes.allows("write", "users/a*/b/inbox")
    assert not principal.scopes.allows("write", "users/another/inbox")
    assert not principal.scopes.allows("write", "news/today")


async def verified(auth: AuthConfig, token: str) -> Principal:
    keys = Keys(source_of(auth))
    await keys.start()
    try:
        return await Tokens(auth, keys, None).verify(token, time.time())
    finally:
        await keys.stop()


def test_a_session_is_read_as_it_would_be_typed() -> None:
    steps = exchanges_of("$ a \\\n  -b\none\ntwo\n$ c\n")
    assert [(step.command, step.output) for step in steps] == [
        ("a \\\n  -b", "one\ntwo"),
        ("c", ""),
    ]


def test_a_session_waits_for_what_runs_in_the_background(tmp_path: Path) -> None:
    with Session(tmp_path) as session:
        session.type(Exchange("mkfifo news; cat news &", ""))
        session.type(Exchange("echo later > news", "later"))


@pytest.mark.parametrize("step", [Exchange("echo hallo", "hello"), Exchange("echo; false", "")])
def test_a_session_fails_when_the_document_is_wrong(step: Exchange, tmp_path: Path) -> None:
    with Session(tmp_path) as session, pytest.raises(AssertionError):
        session.type(step, seconds=0.5)


def test_what_varies_is_masked_and_nothing_else() -> None:
    shown = 'HTTP/1.1 200 OK\nDate: Mon, 16 Nov 2026 10:00:00 GMT\nETag: "abc:0:5"\n\nhello'
    printed = (
        'HTTP/1.1 200 OK\r\nDate: Tue, 17 Nov 2026 11:11:11 GMT\r\nETag: "xyz:0:5"\r\n\r\nhello'
    )
    assert agrees(shown, printed)
    assert not agrees(shown, printed.replace("hello", "hallo"))
    assert not agrees(shown, printed.replace(":0:5", ":0:6"))
    assert agrees("first\n...\nlast", "first\n1\n2\nlast")
    assert not agrees("first\n...\nlast", "first\n1\n2")
    assert masked("Stream-Cursor: 123") == "Stream-Cursor: <cursor>"
