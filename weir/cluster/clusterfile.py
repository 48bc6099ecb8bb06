"""`cluster.json` in the data directory: what runs where, for `weir cluster` and other tools.

It stays when the cluster is stopped, so that the next start finds the same ports. A process id is
null while there is no process.
"""

from pathlib import Path
from typing import Self

import msgspec
from msgspec import Struct, structs

from gateway.devkeys import replace_file
from wire.settings import SettingsError

FILE = "cluster.json"


class Node(Struct, frozen=True):
    """An origin of the cluster."""

    id: str
    url: str
    pid: int | None = None


class NatsServer(Struct, frozen=True):
    name: str
    url: str
    monitor: str
    pid: int | None = None


class ObjectServer(Struct, frozen=True):
    endpoint: str
    bucket: str
    pid: int | None = None
    name: str = "s3"


class GatewayServer(Struct, frozen=True):
    name: str
    url: str
    admin_url: str
    pid: int | None = None


class ClusterFile(Struct, frozen=True):
    """`pid` is that of `weir up`; `secrets_file` has what NATS and S3 ask for."""

    cluster: str
    nodes: tuple[Node, ...]
    nats: tuple[NatsServer, ...]
    s3: ObjectServer
    gateways: tuple[GatewayServer, ...]
    access_key_file: str
    secrets_file: str
    ports: dict[str, int]
    pid: int | None = None

    def with_pid(self, name: str, pid: int | None) -> Self:
        """`name` is a node's id or a server's name."""

        def told(server: NatsServer | ObjectServer | GatewayServer) -> int | None:
            return pid if server.name == name else server.pid

        return structs.replace(
            self,
            nodes=tuple(
                structs.replace(node, pid=pid if node.id == name else node.pid)
                for node in self.nodes
            ),
            nats=tuple(structs.replace(server, pid=told(server)) for server in self.nats),
            s3=structs.replace(self.s3, pid=told(self.s3)),
            gateways=tuple(structs.replace(server, pid=told(server)) for server in self.gateways),
        )


def read_file(data_dir: Path) -> ClusterFile | None:
    """None where no cluster was started yet; raises SettingsError."""
    path = data_dir / FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=ClusterFile)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise SettingsError(str(path), f"cannot be read ({error})") from error


def write_file(data_dir: Path, file: ClusterFile) -> None:
    text = msgspec.json.format(msgspec.json.encode(file), indent=2)
    replace_file(data_dir / FILE, text + b"\n", mode=0o644)
