"""Programs that Debian packages: found, or installed where we may."""

import os
import shutil
import subprocess

from loadtest.errors import UnavailableError


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
    for command in (["update", "-qq"], ["install", "-y", "-qq", *packages]):
        done = subprocess.run(
            ["apt-get", *command], capture_output=True, text=True, check=False, env=environment
        )
    if done.returncode:
        raise UnavailableError(f"{names} could not be installed: {done.stderr.strip()[-200:]}")
