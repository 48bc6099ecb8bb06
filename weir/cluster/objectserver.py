"""The S3 server of a cluster on this machine: SeaweedFS, for development.

It does not promise to sync what it stores, so a power cut may take objects with it.
"""

import logging
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gateway.devkeys import write_private
from weir.cluster.program import Program, find_program, serve_program
from wire.addresses import base_url
from wire.children import Child, ChildFailed

if TYPE_CHECKING:
    from obstore.store import S3Store

log = logging.getLogger("weir.cluster")

PROGRAM = "weed"
BUCKET = "weir"
REGION = "us-east-1"
PROBE = "weir-probe"  # written and removed to see whether objects can be stored
ASK_SECS = 30  # it answers when it has room; an upload given up before may still be stored
PARTS = ("master", "volume", "filer", "s3")  # each has two ports
SOCKETS = "/tmp/seaweedfs-{part}-grpc-{port}.sock"  # made by the program, and left there


@dataclass(frozen=True, slots=True)
class ObjectSettings:
    """`ports` has one for each name of `port_names`."""

    host: str
    ports: Mapping[str, int]
    access_key_id: str
    secret_access_key: str
    folder: Path
    log: Path

    @property
    def endpoint(self) -> str:
        return base_url(self.host, self.ports["s3"])


def port_names() -> Iterator[str]:
    for part in PARTS:
        yield part
        yield f"{part}.grpc"


def render_identity(settings: ObjectSettings) -> str:
    """One identity that may do everything, so that its first upload creates the bucket."""
    keys = {"accessKey": settings.access_key_id, "secretKey": settings.secret_access_key}
    identity = {"name": "weir", "credentials": [keys], "actions": ["Admin"]}
    return msgspec.json.encode({"identities": [identity]}).decode()


def server_flags(settings: ObjectSettings) -> list[str]:
    """Paths are relative to its folder: sockets have short ones."""
    ports = settings.ports
    flags = ["-logtostderr=true", "server", "-dir=store", f"-ip={settings.host}"]
    flags += [f"-ip.bind={settings.host}", "-filer", "-s3"]
    for part in PARTS:
        flags += [f"-{part}.port={ports[part]}", f"-{part}.port.grpc={ports[f'{part}.grpc']}"]
    flags += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.config=identity.json"]
    flags += ["-s3.localSocket=s3.sock", "-filer.localSocket=filer.sock"]
    flags += ["-s3.autoCreateBucket=true", "-master.telemetry=false"]
    # With the default of 10 s it takes 17 s to start again.
    flags += ["-master.electionTimeout=1s"]
    return [*flags, "-volume.max=50", "-master.volumeSizeLimitMB=1024"]


def serve_objects(settings: ObjectSettings, on_ready: Callable[[int], None], child: Child) -> int:
    """Ready when it has stored an object, and so has the bucket."""
    (settings.folder / "store").mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(settings.folder / "identity.json", render_identity(settings))
    # On SIGTERM it waits 15 s for its own subscribers. What it acknowledged is written by then.
    program = Program(
        (str(find_program(PROGRAM)), *server_flags(settings)),
        settings.folder,
        settings.log,
        stop_signal=signal.SIGKILL,
    )
    with ExitStack() as left:
        left.callback(_remove_sockets, settings)
        return serve_program(program, partial(stores_objects, settings), on_ready, child)


def _remove_sockets(settings: ObjectSettings) -> None:
    for part in PARTS:
        path = SOCKETS.format(part=part, port=settings.ports[f"{part}.grpc"])
        Path(path).unlink(missing_ok=True)


async def stores_objects(settings: ObjectSettings) -> bool:
    # Only here: its threads must not be started before a fork.
    from obstore.exceptions import BaseError

    store = _open_store(settings)
    try:
        await store.put_async(PROBE, b"probe")
        await store.delete_async(PROBE)
    except BaseError as error:
        log.debug("the S3 server stores nothing yet: %s", error)
        return False
    return True


def _open_store(settings: ObjectSettings) -> "S3Store":
    """Raises ChildFailed where obstore cannot work at all, such as without any certificates."""
    from obstore.exceptions import BaseError
    from obstore.store import S3Store

    try:
        return S3Store(
            BUCKET,
            endpoint=settings.endpoint,
            region=REGION,
            access_key_id=settings.access_key_id,
            secret_access_key=settings.secret_access_key,
            client_options={"allow_http": True, "timeout": f"{ASK_SECS}s", "connect_timeout": "1s"},
            retry_config={"max_retries": 0},
        )
    except BaseError as error:
        raise ChildFailed(1, " ".join(str(error).split())) from error
