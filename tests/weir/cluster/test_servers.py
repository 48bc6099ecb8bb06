"""The real NATS and S3 servers, as `weir up --cluster` starts, restarts and stops them."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar
from urllib.request import urlopen

import msgspec
import nats
import obstore
import pytest
from nats.js import JetStreamContext
from nats.js.api import StreamConfig
from obstore.exceptions import BaseError
from obstore.store import S3Store

from tests.helpers.processes import is_gone
from tests.helpers.rawhttp import wait_until
from tests.helpers.server import ROOT
from weir.cluster.clusterfile import ClusterFile, read_file
from weir.cluster.credentials import Credentials
from weir.cluster.natsserver import NatsSettings, render_config
from weir.cluster.objectserver import (
    PARTS,
    REGION,
    SOCKETS,
    ObjectSettings,
    port_names,
    server_flags,
)
from weir.cluster.program import find_program
from wire.settings import SettingsError

WAIT_S = 90.0
T = TypeVar("T")
SETTINGS = NatsSettings(
    name="nats-2",
    cluster="weir",
    host="127.0.0.1",
    port=1,
    route_port=2,
    monitor_port=3,
    route_ports=(12, 2),
    user="weir",
    password="secret",
    folder=Path("/data with/a blank"),
    log=Path("/log"),
)


def test_a_configuration_syncs_each_message_and_asks_for_a_password() -> None:
    assert render_config(SETTINGS).splitlines() == [
        'server_name: "nats-2"',
        'listen: "127.0.0.1:1"',
        'http: "127.0.0.1:3"',
        "max_payload: 8MB",
        "max_pending: 64MB",
        'authorization { user: "weir", password: "secret" }',
        "jetstream {",
        '  store_dir: "/data with/a blank/store"',
        "  max_mem: 256MB",
        "  max_file: 20GB",
        "  sync_interval: always",
        "}",
        "cluster {",
        '  name: "weir"',
        '  listen: "127.0.0.1:2"',
        '  authorization { user: "weir", password: "secret" }',
        '  routes: ["nats://weir:secret@127.0.0.1:12", "nats://weir:secret@127.0.0.1:2"]',
        "}",
    ]


def test_one_server_is_no_cluster() -> None:
    assert "cluster {" not in render_config(replace(SETTINGS, route_ports=(2,)))


def test_an_s3_server_reports_to_nobody_and_stays_on_loopback() -> None:
    ports = {name: 1000 + number for number, name in enumerate(port_names())}
    flags = server_flags(
        ObjectSettings("127.0.0.1", ports, "id", "secret", Path("/s3"), Path("/log"))
    )
    assert {"-master.telemetry=false", "-ip.bind=127.0.0.1", "-s3.port=1006"} <= set(flags)
    assert not any("secret" in flag for flag in flags)


def test_a_missing_program_names_what_to_install() -> None:
    with pytest.raises(SettingsError, match="cluster-dev"):
        find_program("no-such-server")


# -- processes ---------------------------------------------------------------------------------


class Backing:
    """The running servers."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.helpers.backing", str(self.data)]
        env = os.environ | {"PYTHONPATH": str(ROOT)}
        with (self.data.parent / "log").open("w") as log:
            self.process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
        self.wait_until(lambda: "ready\n" in self.printed or not self.running)
        assert self.running, self.told

    def wait_until(self, condition: Callable[[], bool]) -> None:
        try:
            wait_until(condition, WAIT_S)
        except AssertionError as error:
            raise AssertionError(self.told) from error

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    @property
    def printed(self) -> str:
        return (self.data.parent / "log").read_text()

    @property
    def told(self) -> str:
        """Everything that may say why something does not happen."""
        ends = (log.read_text(errors="replace")[-1500:] for log in self.data.glob("logs/*.log"))
        return "\n\n".join([self.printed, *ends])

    @property
    def file(self) -> ClusterFile:
        file = read_file(self.data)
        assert file is not None
        return file

    @property
    def pids(self) -> list[int]:
        file = self.file
        told = [*(server.pid for server in file.nats), file.s3.pid]
        return [pid for pid in told if pid is not None]

    @property
    def credentials(self) -> Credentials:
        return msgspec.json.decode(Path(self.file.secrets_file).read_bytes(), type=Credentials)

    @asynccontextmanager
    async def jetstream(self) -> AsyncIterator[JetStreamContext]:
        urls = [server.url for server in self.file.nats]
        user, password = self.credentials.nats_user, self.credentials.nats_password
        client = await nats.connect(urls, user=user, password=password)
        try:
            yield client.jetstream()
        finally:
            await client.close()

    async def insist(self, ask: Callable[[], Awaitable[T]]) -> T:
        """A stream elects its leader after it was made, and after each start."""
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                return await ask()
            except nats.errors.Error as error:
                assert time.monotonic() < deadline, f"{error!r}\n{self.told}"
                await asyncio.sleep(0.1)

    def store(self, secret: str = "") -> S3Store:
        return S3Store(
            self.file.s3.bucket,
            endpoint=self.file.s3.endpoint,
            region=REGION,
            access_key_id=self.credentials.s3_access_key_id,
            secret_access_key=secret or self.credentials.s3_secret_access_key,
            client_options={"allow_http": True, "timeout": "10s"},
            retry_config={"max_retries": 0},
        )

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WAIT_S)


@pytest.fixture(scope="module")
def backing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backing]:
    running = Backing(tmp_path_factory.mktemp("backing"))
    yield running
    running.process.kill()
    running.process.wait()


@pytest.mark.slow
def test_each_server_syncs_always(backing: Backing) -> None:
    for server in backing.file.nats:
        with urlopen(f"{server.monitor}/varz", timeout=10) as answer:
            told = json.load(answer)
        assert told["jetstream"]["config"]["sync_always"] is True
        assert (told["server_name"], told["max_payload"]) == (server.name, 8 * 1024 * 1024)


@pytest.mark.slow
def test_nobody_talks_to_nats_without_the_password(backing: Backing) -> None:
    for server in backing.file.nats:
        with socket.create_connection(("127.0.0.1", backing.file.ports[server.name]), 10) as bare:
            assert b'"auth_required":true' in bare.recv(4096)


@pytest.mark.slow
async def test_streams_have_three_copies(backing: Backing) -> None:
    async with backing.jetstream() as js:
        made = await js.add_stream(StreamConfig(name="T", subjects=["t"], num_replicas=3))
        assert made.cluster is not None and len(made.cluster.replicas or ()) == 2
        stored = await backing.insist(lambda: js.publish("t", b"kept"))
        assert stored.seq == 1


@pytest.mark.slow
def test_objects_are_stored_for_those_who_know_the_secret(backing: Backing) -> None:
    backing.store().put("a/b", b"kept")
    with pytest.raises(BaseError):
        backing.store("wrong").get("a/b")
    names = [each["path"] for each in backing.store().list().collect()]
    assert names == ["a/b"]  # nothing is left of the probe


@pytest.mark.slow
def test_killed_servers_come_back_where_they_were(backing: Backing) -> None:
    before = backing.file
    for pid in (before.nats[0].pid, before.s3.pid):
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
    backing.wait_until(lambda: backing.printed.count("is back") == 2)
    after = backing.file
    assert after.ports == before.ports
    assert after.nats[0].pid != before.nats[0].pid and after.s3.pid != before.s3.pid
    assert after.nats[1:] == before.nats[1:]
    assert bytes(obstore.get(backing.store(), "a/b").bytes()) == b"kept"


def sockets_of(file: ClusterFile) -> list[str]:
    paths = (SOCKETS.format(part=p, port=file.ports[f"s3.{p}.grpc"]) for p in PARTS)
    return [path for path in paths if Path(path).exists()]


@pytest.mark.slow
async def test_a_new_start_has_the_same_ports_and_data(backing: Backing) -> None:
    before, pids = backing.file, backing.pids
    assert backing.stop() == 0
    assert all(map(is_gone, pids))
    assert backing.pids == []
    assert sockets_of(before) == []
    with socket.create_server(("127.0.0.1", before.ports["nats-3.monitor"])):
        backing.start()
    after = backing.file
    changed = {name for name, port in after.ports.items() if port != before.ports[name]}
    assert changed == {"nats-3.monitor"}
    assert bytes(obstore.get(backing.store(), "a/b").bytes()) == b"kept"
    async with backing.jetstream() as js:
        message = await backing.insist(lambda: js.get_msg("T", 1))
        assert message.data == b"kept"


@pytest.mark.slow
def test_nothing_outlives_a_killed_parent(backing: Backing) -> None:
    pids = backing.pids
    backing.process.kill()
    backing.wait_until(lambda: all(map(is_gone, pids)))
