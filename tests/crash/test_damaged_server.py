"""The real server on damaged data: it refuses to start, or serves what is sound."""

import http.client
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.crash.http import Answer, call
from tests.crash.spoil import cut, flip
from tests.helpers.server import launch, run_weir, started
from tests.origin.storage.driver import batches, has_batches

SETTINGS = {
    "DS_STORAGE__JOURNAL_BYTES": "262144",
    "DS_LIMITS__MAX_BODY_BYTES": "65536",
}
TEXT = {"Content-Type": "text/plain"}


@pytest.fixture(scope="module")
def killed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Data of a real server: checkpointed, stopped, started again, appended to and killed."""
    folder = tmp_path_factory.mktemp("killed-server")
    for last in (False, True):
        often = {} if last else {"DS_STORAGE__CHECKPOINT_SECS": "0.1"}
        with started(folder, "file-durable", settings=SETTINGS | often) as server:
            for name in ("a", "b"):
                url = f"{server.url}/v1/stream/{name}"
                assert call("PUT", url, TEXT).status in (200, 201)
                for number in range(5):
                    line = f"{name}{number}{'late' if last else ''}\n".encode()
                    assert call("POST", url, TEXT, line).status == 204
            if not last:
                wait_for_checkpoint(folder / "data")
                assert server.stop() == 0
    yield folder / "data"


def wait_for_checkpoint(data: Path) -> None:
    """A finished checkpoint has retired every journal file that holds a batch."""
    deadline = time.monotonic() + 60
    while has_batches(data):
        assert time.monotonic() < deadline, "no checkpoint"
        time.sleep(0.05)


def expected(name: str) -> bytes:
    early = "".join(f"{name}{number}\n" for number in range(5))
    return (early + "".join(f"{name}{number}late\n" for number in range(5))).encode()


def test_real_server_starts_on_sound_data(killed_server: Path, tmp_path: Path) -> None:
    shutil.copytree(killed_server, tmp_path / "data")
    with started(tmp_path, "file-durable", settings=SETTINGS) as server:
        for name in ("a", "b"):
            assert call("GET", f"{server.url}/v1/stream/{name}").body == expected(name)
    checked = run_weir("fsck", str(killed_server))
    assert (checked.returncode, checked.stderr) == (0, ""), checked


def _journal_with_batches(data: Path) -> Path:
    return next(path for path in sorted((data / "journal").glob("*.journal")) if batches(path))


def _flip_journal(number: int, offset: int) -> Callable[[Path], Path]:
    def damage(data: Path) -> Path:
        path = _journal_with_batches(data)
        flip(path, batches(path)[number][0] + offset)
        return path

    return damage


def _cut_journal(data: Path) -> Path:
    path = _journal_with_batches(data)
    cut(path, batches(path)[-1][1] - 3)
    return path


def _flip_header(data: Path) -> Path:
    path = _journal_with_batches(data)
    flip(path, 13)
    return path


def _drop_journals(data: Path) -> Path:
    for path in (data / "journal").glob("*.journal"):
        path.unlink()
    return data / "catalog"


def _flip_catalog(data: Path) -> Path:
    flip(data / "catalog", (data / "catalog").stat().st_size // 2)
    return data / "catalog"


def _cut_catalog(data: Path) -> Path:
    cut(data / "catalog", (data / "catalog").stat().st_size - 1)
    return data / "catalog"


def _drop_catalog(data: Path) -> Path:
    (data / "catalog").unlink()
    return data / "catalog"


def _flip_watermark(data: Path) -> Path:
    flip(data / "journal" / "watermark", 3)
    return data / "journal" / "watermark"


FATAL: dict[str, Callable[[Path], Path]] = {
    "journal header": _flip_header,
    "journal cut": _cut_journal,
    "journal deleted": _drop_journals,
    "first batch magic": _flip_journal(0, 0),
    "first batch payload": _flip_journal(0, 30),
    "middle batch length": _flip_journal(4, 4),
    "middle batch number": _flip_journal(4, 8),
    "last batch checksum": _flip_journal(-1, 20),
    "last batch payload": _flip_journal(-1, 26),
    "catalog middle": _flip_catalog,
    "catalog cut": _cut_catalog,
    "catalog deleted": _drop_catalog,
    "watermark": _flip_watermark,
}


@pytest.mark.parametrize("damage", FATAL)
def test_real_server_refuses_to_start(killed_server: Path, tmp_path: Path, damage: str) -> None:
    data = Path(shutil.copytree(killed_server, tmp_path / "data"))
    path = FATAL[damage](data)
    before = {file: file.read_bytes() for file in data.rglob("*") if file.is_file()}
    checked = run_weir("fsck", str(data))
    assert checked.returncode == 1 and f"{path}: damaged at byte " in checked.stdout, checked
    server = launch(tmp_path, "file-durable", settings=SETTINGS)
    try:
        assert server.wait() == 3
    finally:
        server.kill()
    assert len(server.stderr.splitlines()) == 1, server.stderr
    assert f"{path.relative_to(tmp_path)}: damaged at byte " in server.stderr
    after = {file: file.read_bytes() for file in data.rglob("*") if file.is_file()}
    assert after | {data / "lock": b""} == before | {data / "lock": b""}, "refused, but changed"


def test_real_server_serves_around_a_damaged_segment(killed_server: Path, tmp_path: Path) -> None:
    data = Path(shutil.copytree(killed_server, tmp_path / "data"))
    segments = sorted(data.rglob("*.seg"))
    spoiled = next(path for path in segments if b"a0\n" in path.read_bytes())
    flip(spoiled, spoiled.read_bytes().index(b"a0\n"))
    assert run_weir("fsck", str(data)).returncode == 1
    with started(tmp_path, "file-durable", settings=SETTINGS) as server:
        answer = call("GET", f"{server.url}/v1/stream/a")
        assert (answer.status, answer.headers["Content-Type"]) == (500, "application/problem+json")
        assert json.loads(answer.body)["code"] == "damaged"
        assert str(spoiled) not in answer.body.decode(), "files are nobody's business"
        assert call("GET", f"{server.url}/v1/stream/a?offset=-1&live=long-poll").status == 500
        assert call("GET", f"{server.url}/v1/stream/b").body == expected("b")
        assert call("POST", f"{server.url}/v1/stream/b", TEXT, b"on\n").status == 204
        assert str(spoiled.relative_to(tmp_path)) in server.stderr
        assert "Traceback" not in server.stderr


def test_damaged_snapshot_is_never_served(tmp_path: Path) -> None:
    """Neither alone nor in a bootstrap nor by a fork; the next publication makes it good."""
    data = tmp_path / "data"
    with started(tmp_path, "file-durable", settings=SETTINGS) as server:
        tails = {}
        for name in ("a", "b"):
            url = f"{server.url}/v1/stream/{name}"
            assert call("PUT", url, TEXT, b"bytes").status == 201
            tails[name] = call("HEAD", url).headers["Stream-Next-Offset"]
            body = name.encode() * 600_000
            assert call("PUT", f"{url}/snapshot/{tails[name]}", TEXT, body).status == 204
        server.kill()
    spoiled = next(p for p in data.rglob("snapshots/*/*") if b"aaaa" in p.read_bytes())
    flip(spoiled, 500_000)
    checked = run_weir("fsck", str(data))
    assert checked.returncode == 1
    assert "damaged: stream a: " in checked.stdout and str(spoiled) in checked.stdout
    with started(tmp_path, "file-durable", settings=SETTINGS) as server:
        url = f"{server.url}/v1/stream/a"
        for target in (f"{url}/snapshot/{tails['a']}", f"{url}/bootstrap"):
            assert whole_answer(target) is None, "it was served as if it were whole"
        fork = {"Stream-Forked-From": "/v1/stream/a"}
        refused = call("PUT", f"{server.url}/v1/stream/fork", fork)
        assert (refused.status, json.loads(refused.body)["code"]) == (500, "damaged")
        assert call("GET", f"{server.url}/v1/stream/fork").status == 404
        assert str(spoiled.relative_to(tmp_path)) in server.stderr
        assert "Traceback" not in server.stderr
        other = call("GET", f"{server.url}/v1/stream/b/snapshot/{tails['b']}")
        assert other.body == b"b" * 600_000
        assert call("POST", url, TEXT, b"more").status == 204
        assert call("GET", f"{url}?offset={tails['a']}").body == b"more"
        assert call("PUT", f"{url}/snapshot/{tails['a']}", TEXT, b"again").status == 204
        assert call("GET", f"{url}/snapshot/{tails['a']}").body == b"again"


def whole_answer(url: str) -> Answer | None:
    """None for one that was cut off."""
    try:
        answer = call("GET", url)
    except (http.client.HTTPException, ConnectionError):
        return None
    return answer if answer.status == 200 else None


def test_acid_rows_are_verified(tmp_path: Path) -> None:
    with started(tmp_path, "acid", settings=SETTINGS) as server:
        for name, data in (("a", b"a" * 9000), ("b", b"b" * 100)):
            url = f"{server.url}/v1/stream/{name}"
            call("PUT", url, TEXT)
            assert call("POST", url, TEXT, data).status == 204
    spoiled = next(
        p for p in (tmp_path / "data").rglob("data.mdb") if b"a" * 9000 in p.read_bytes()
    )
    flip(spoiled, spoiled.read_bytes().index(b"a" * 9000) + 4444, 0x02)
    checked = run_weir("fsck", str(tmp_path / "data"))
    assert checked.returncode == 1 and str(spoiled) in checked.stdout
    with started(tmp_path, "acid", settings=SETTINGS) as server:
        answer = call("GET", f"{server.url}/v1/stream/a")
        assert (answer.status, json.loads(answer.body)["code"]) == (500, "damaged")
        assert call("GET", f"{server.url}/v1/stream/b").body == b"b" * 100


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"shards":16}'])
def test_acid_manifest_that_makes_no_sense_is_refused(tmp_path: Path, content: bytes) -> None:
    with started(tmp_path, "acid", settings=SETTINGS):
        pass
    manifest = tmp_path / "data" / "acid" / "manifest.json"
    manifest.write_bytes(content)
    server = launch(tmp_path, "acid", settings=SETTINGS)
    assert server.wait() == 3
    assert "data/acid/manifest.json: " in server.stderr
    assert len(server.stderr.splitlines()) == 1


def test_acid_file_without_head_is_refused(tmp_path: Path) -> None:
    with started(tmp_path, "acid", settings=SETTINGS):
        pass
    path = tmp_path / "data" / "acid" / "shard-003" / "data.mdb"
    path.write_bytes(b"\xff" * 8192)
    server = launch(tmp_path, "acid", settings=SETTINGS)
    assert server.wait() == 3
    assert f"{path.relative_to(tmp_path)}: damaged at byte 0" in server.stderr
    checked = run_weir("fsck", str(tmp_path / "data"))
    assert checked.returncode == 1 and str(path) in checked.stdout, checked
