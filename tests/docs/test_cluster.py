"""The production layout of docs/cluster.md: NATS takes the configuration that it shows."""

import os
import re
import subprocess
from pathlib import Path
from textwrap import dedent

from tests.docs.snippets import ROOT
from tests.helpers.nats import BINARY


def test_nats_understands_its_configuration(tmp_path: Path) -> None:
    text = (ROOT / "docs/cluster.md").read_text("utf-8")
    found = re.search(r"^    server_name: .*?(?=^\S)", text, re.MULTILINE | re.DOTALL)
    assert found is not None and "sync_interval: always" in found[0]
    config = tmp_path / "nats.conf"
    config.write_text(dedent(found[0]).replace("/var/lib/nats", str(tmp_path)))
    command = [str(BINARY), "-t", "-c", str(config)]
    env = {**os.environ, "NATS_PASSWORD": "secret"}
    told = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    without = {name: value for name, value in env.items() if name != "NATS_PASSWORD"}
    assert subprocess.run(command, env=without, capture_output=True, check=False).returncode != 0
