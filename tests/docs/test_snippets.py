"""Every runnable piece of the documents is run, and prints what the document shows."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.config import load_config as load_gateway_config
from loadtest.demo import make_tokens, start_servers, stop_servers
from origin.config import load_config as load_origin_config
from tests.conformance.runner import find_node, install_packages
from tests.docs.snippets import (
    DOCUMENTS,
    ROOT,
    Snippet,
    agrees,
    all_snippets,
    exchanges_of,
    masked,
    snippets_of,
)
from tests.helpers.require import need

SESSIONS = [path for path in DOCUMENTS if any(s.language == "console" for s in snippets_of(path))]
SCRIPTS = [path for path in DOCUMENTS if any(s.language == "js" for s in snippets_of(path))]
MARK = "--- end of output ---"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a newcomer sits: a checkout with both servers running."""

    folder: Path
    urls: dict[str, str]

    def translate(self, command: str) -> str:
        """The same command for the ports that are free here."""
        origin, gateway = (
            self.urls[name].removeprefix("http://") for name in ("origin", "gateway")
        )
        command = command.replace("localhost:8080", gateway).replace("127.0.0.1:8080", gateway)
        return command.replace("localhost:4437", origin).replace("127.0.0.1:4437", origin)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("newcomer")
    (folder / ".venv").symlink_to(Path(sys.executable).parent.parent)
    process, urls = start_servers(folder)
    try:
        yield Place(folder, urls)
    finally:
        stop_servers(process)


@pytest.mark.parametrize("path", SESSIONS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_session_prints_what_the_document_shows(path: Path, place: Place) -> None:
    texts = [one.text for one in snippets_of(path) if one.language == "console"]
    steps = [step for text in texts for step in exchanges_of(text)]
    script = "\n".join(f"{place.translate(step.command)}\necho; echo '{MARK}'" for step in steps)
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=place.folder,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
        check=False,
    )
    printed = done.stdout.split(f"{MARK}\n")[:-1]
    assert len(printed) == len(steps), f"stopped after {len(printed)}: {done.stdout[-500:]}"
    for step, output in zip(steps, printed, strict=True):
        assert agrees(step.output, output), f"$ {step.command}\n{output}\n-- not --\n{step.output}"


@pytest.mark.parametrize("snippet", all_snippets("toml"), ids=lambda one: one.id)
def test_settings_are_understood(snippet: Snippet, tmp_path: Path) -> None:
    path = tmp_path / "snippet.toml"
    path.write_text(snippet.text)
    keys = {"DS_AUTH__JWKS": "keys.json"}  # a gateway has no default for these
    load_gateway_config({}, keys, config_file=str(path))
    load_origin_config({}, {}, config_file=str(path))


def test_a_session_is_read_as_it_would_be_typed() -> None:
    steps = exchanges_of("$ a \\\n  -b\none\ntwo\n$ c\n")
    assert [(step.command, step.output) for step in steps] == [
        ("a \\\n  -b", "one\ntwo"),
        ("c", ""),
    ]


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


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_scripts_run_one_after_another(path: Path, place: Place) -> None:
    """Each as a module of its own, in the order of the document."""
    node = find_node()
    need(node, "Node is not installed")
    assert node is not None
    clients = ROOT / "tests/clients"
    install_packages(node, clients)
    (place.folder / "node_modules").symlink_to(clients / "node_modules")
    token = make_tokens(place.folder, 1)[0]
    given = [f"const base = {place.urls['gateway']!r}", f"const token = () => {token!r}"]
    for number, snippet in enumerate(s for s in snippets_of(path) if s.language == "js"):
        module = place.folder / f"{path.stem}-{number}.mjs"
        module.write_text("\n".join([*given, snippet.text]))
        done = subprocess.run(
            [node.node, str(module)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{snippet.id}: {done.stderr[-800:]}"
