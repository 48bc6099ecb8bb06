import json
from pathlib import Path

import pytest

from tests.helpers.clusters import make_file
from weir.cluster.clusterfile import FILE, read_file, write_file
from wire.settings import SettingsError


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert read_file(tmp_path) is None
    file = make_file(pid=12)
    write_file(tmp_path, file)
    assert read_file(tmp_path) == file
    assert [path.name for path in tmp_path.iterdir()] == [FILE]  # no draft is left


def test_tools_find_what_they_need(tmp_path: Path) -> None:
    write_file(tmp_path, make_file().with_pid("n2", 7))
    told = json.loads((tmp_path / FILE).read_text())
    assert told["nodes"][1] == {"id": "n2", "url": "http://127.0.0.1:2", "pid": 7}
    assert {"name", "url", "monitor", "pid"} <= set(told["nats"][0])
    assert {"endpoint", "pid"} <= set(told["s3"])
    assert {"url", "admin_url", "pid"} <= set(told["gateways"][0])
    assert told["access_key_file"] == "/data/keys/origin-key"


@pytest.mark.parametrize("name", ["n1", "n2", "nats-1", "s3", "gateway-2"])
def test_a_process_id_belongs_to_one_server(name: str) -> None:
    file = make_file()
    started = file.with_pid(name, 7)
    pids = {node.id: node.pid for node in started.nodes} | {started.s3.name: started.s3.pid}
    pids |= {server.name: server.pid for server in started.nats}
    pids |= {server.name: server.pid for server in started.gateways}
    assert {key for key, pid in pids.items() if pid == 7} == {name}
    assert started.with_pid(name, None) == file


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("[]")
    with pytest.raises(SettingsError, match=FILE):
        read_file(tmp_path)
