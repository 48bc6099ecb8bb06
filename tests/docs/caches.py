"""The caches of docs/cdn.md: nginx and Varnish, set up by the text of that page.

Their Debian packages are unpacked, not installed. Only what every operator must fill in is
replaced: addresses, the folder, the token, who may purge, and the port without TLS.
"""

import os
import shutil
import subprocess
import textwrap
import tomllib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtest.errors import UnavailableError
from loadtest.peers.configs import NGINX_FRAME
from loadtest.peers.debian import unpack_debian
from loadtest.peers.process import Server, Start, free_port, run_process
from tests.docs.snippets import ROOT, snippets_of
from tests.helpers.require import need

PAGE = ROOT / "docs" / "cdn.md"
NGINX = "nginx"
VARNISH = "Varnish"
PACKAGES = {
    NGINX: ("nginx",),
    VARNISH: ("varnish", "varnish-modules", "libvarnishapi3", "libedit2", "libjemalloc2"),
}
SMALL = ("thread_pool_min=10", "vsl_space=1m")


@dataclass(frozen=True, slots=True)
class Cache:
    """Where a cache will listen and keep its files, and the token that it asks by."""

    name: str
    folder: Path
    port: int
    token: str

    def run(self, gateway_port: int) -> AbstractContextManager[Server]:
        self.folder.mkdir(parents=True, exist_ok=True)
        start = _start_nginx if self.name == NGINX else _start_varnish
        return run_process(start(self, gateway_port), self.folder / "log")

    def settings(self) -> dict[str, Any]:
        """[cdn] of the page. nginx cannot purge."""
        [snippet] = (one for one in snippets_of(PAGE) if one.language == "toml")
        cdn: dict[str, Any] = tomllib.loads(snippet.text)["cdn"]
        here = {"http://varnish:6081/": f"http://127.0.0.1:{self.port}/"}
        url = fill(cdn["purge_url"], here) if self.name == VARNISH else ""
        return cdn | {"public": tuple(cdn["public"]), "purge_url": url}


def make_cache(name: str, folder: Path, token: str) -> Cache:
    """Skips the test where its programs cannot be had."""
    _roots(name)
    return Cache(name, folder, free_port(), token)


def recipe(heading: str) -> str:
    """The indented block of a chapter."""
    _, _, chapter = PAGE.read_text("utf-8").partition(f"\n## {heading}\n")
    lines = chapter.partition("\n## ")[0].splitlines()
    return textwrap.dedent("\n".join(line for line in lines if not line or line[:4] == " " * 4))


def fill(text: str, values: Mapping[str, str]) -> str:
    for old, new in values.items():
        assert old in text, f"the recipe has no {old}"
        text = text.replace(old, new)
    return text


def _start_nginx(cache: Cache, gateway_port: int) -> Start:
    values = {
        "/var/cache/nginx/weir": str(cache.folder / "kept"),
        "Bearer eyJ...": f"Bearer {cache.token}",
        "server gateway:8080": f"server 127.0.0.1:{gateway_port}",
        "listen 443 ssl": f"listen 127.0.0.1:{cache.port}",
    }
    user = "user root;" if os.geteuid() == 0 else ""
    text = NGINX_FRAME.format(
        load="", user=user, folder=cache.folder, http=fill(recipe(NGINX), values)
    )
    path = cache.folder / "nginx.conf"
    path.write_text(text)
    [root] = _roots(NGINX)
    command = [str(root / "usr/sbin/nginx"), "-p", str(cache.folder), "-c", str(path)]
    return Start([*command, "-e", "stderr"], cache.port)


def _start_varnish(cache: Cache, gateway_port: int) -> Start:
    token = cache.folder / "token"
    token.write_text(cache.token)
    values = {
        '"gateway"': '"127.0.0.1"',
        '"8080"': f'"{gateway_port}"',
        '"10.0.0.0"/24': '"127.0.0.1"',
        "/etc/varnish/news.token": str(token),
    }
    path = cache.folder / "weir.vcl"
    path.write_text(fill(recipe(VARNISH), values))
    roots = _roots(VARNISH)
    modules = ":".join(str(folder) for root in roots for folder in root.glob("usr/lib/*/*/vmods"))
    command = [str(roots[0] / "usr/sbin/varnishd"), "-F", "-j", "none", "-T", "none"]
    command += ["-n", str(cache.folder / "work"), "-a", f"127.0.0.1:{cache.port}"]
    command += ["-f", str(path), "-s", "malloc,32m"]
    options = (f"vmod_path={modules}", *SMALL)
    command += [word for option in options for word in ("-p", option)]
    return Start(command, cache.port, _libraries(roots))


def _roots(name: str) -> list[Path]:
    """Where the packages are unpacked, the program's own first."""
    try:
        roots = [unpack_debian(package, ROOT / ".bench/debian") for package in PACKAGES[name]]
    except UnavailableError as error:
        need(False, str(error))
    if name == VARNISH:
        need(shutil.which("gcc"), "Varnish compiles its VCL, and there is no C compiler (gcc)")
    program = next(roots[0].glob("usr/sbin/*"))
    environment = os.environ | _libraries(roots)
    asked = subprocess.run(
        [program, "-V"], env=environment, capture_output=True, text=True, check=False
    )
    need(not asked.returncode, f"{program.name} does not run here: {asked.stderr[-200:]}")
    return roots


def _libraries(roots: list[Path]) -> dict[str, str]:
    folders = [str(folder) for root in roots for folder in root.glob("usr/lib/*-linux-gnu*")]
    return {"LD_LIBRARY_PATH": ":".join(folders)}
