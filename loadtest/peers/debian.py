"""Programs that Debian packages: found, or installed where we may.

python -m loadtest.peers.debian java=default-jre-headless chromium=chromium
"""

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from loadtest.errors import UnavailableError

INSTALL = ("install", "-y", "-qq", "--no-install-recommends")


def ensure_debian(program: str, *packages: str) -> None:
    """Install the packages when the program is missing and we may."""
    if shutil.which(program):
        return
    install_debian(*packages)
    if not shutil.which(program):
        raise UnavailableError(f"{program} is missing although {packages[0]} is installed")


def install_debian(*packages: str) -> None:
    names = " ".join(packages)
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise UnavailableError(f"{names} is not installed, and only root can install it (apt-get)")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-qq"], [*INSTALL, *packages]):
        done = subprocess.run(
            ["apt-get", *command], capture_output=True, text=True, check=False, env=environment
        )
    if done.returncode:
        raise UnavailableError(f"{names} could not be installed: {done.stderr.strip()[-200:]}")


def unpack_debian(package: str, folder: Path) -> Path:
    """The package's files below the folder, fetched once: nothing is installed, no service starts.

    Raises UnavailableError; needs no root where the lists of packages are there.
    """
    root = folder / package
    if root.is_dir():
        return root
    if not shutil.which("apt-get"):
        raise UnavailableError(f"{package} is a package of Debian, and there is no apt-get")
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder) as draft:
        fetch = ["apt-get", "download", "-qq", package]
        error = _run(fetch, draft)
        if error and os.geteuid() == 0:  # the lists may be missing, or old
            error = _run(["apt-get", "update", "-qq"], draft) or _run(fetch, draft)
        if error:
            raise UnavailableError(f"{package} could not be fetched: {error[-200:]}")
        [archive] = Path(draft).glob("*.deb")
        if error := _run(["dpkg", "-x", archive.name, "files"], draft):
            raise UnavailableError(f"{package} could not be unpacked: {error[-200:]}")
        with suppress(OSError):  # another process was first
            os.rename(Path(draft, "files"), root)
    return root


def _run(command: list[str], folder: str) -> str:
    """What it complained about when it failed."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.stderr.strip() or f"exit code {done.returncode}" if done.returncode else ""


def main(arguments: list[str]) -> int:
    """How many could not be had, each with its reason."""
    missing = 0
    for program, _, package in (argument.partition("=") for argument in arguments):
        try:
            ensure_debian(program, package)
        except UnavailableError as error:
            print(error, file=sys.stderr)
            missing += 1
    return missing


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
