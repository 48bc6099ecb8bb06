"""Tables change as a whole or not at all, wherever the process ends."""

import itertools
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark.tables import STATE, Change, InUse, State, Tables

COLUMNS = "name string, date date"


class Killed(BaseException):
    """Nobody catches it: what follows in the process does not happen."""


def lay(change: Change, table: str, date: str, text: str) -> None:
    """A file where Spark would have written one."""
    folder = change.folder / table / f"date={date}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{text}.parquet").write_text(text)


def contents(tables: Tables) -> dict[str, str]:
    root = tables.current
    return {
        str(path.relative_to(root)): path.read_text() for path in sorted(root.rglob("*.parquet"))
    }


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    """With one generation: a and b on two dates each."""
    tables = Tables(tmp_path)
    tables.open()
    change = tables.begin()
    for table, date in itertools.product("ab", ("2026-06-01", "2026-06-02")):
        lay(change, table, date, "old")
    tables.commit(change, State(batch=1))
    return tables


def change_some(tables: Tables) -> None:
    """Add to a, replace one date of b."""
    change = tables.begin()
    lay(change, "a", "2026-06-02", "more")
    lay(change, "b", "2026-06-02", "new")
    change.replaced.add(Path("b", "date=2026-06-02"))
    tables.commit(change, replace(tables.state, batch=2))


OLD = {
    "a/date=2026-06-01/old.parquet": "old",
    "a/date=2026-06-02/old.parquet": "old",
    "b/date=2026-06-01/old.parquet": "old",
    "b/date=2026-06-02/old.parquet": "old",
}
NEW = {
    "a/date=2026-06-01/old.parquet": "old",
    "a/date=2026-06-02/more.parquet": "more",
    "a/date=2026-06-02/old.parquet": "old",
    "b/date=2026-06-01/old.parquet": "old",
    "b/date=2026-06-02/new.parquet": "new",
}


def test_a_change_adds_and_replaces_and_leaves_the_rest(tables: Tables) -> None:
    change_some(tables)
    assert contents(tables) == NEW
    assert tables.state == State(generation=2, batch=2)


STEPS = ("link", "mkdir", "rename", "symlink", "fsync", "unlink", "rmdir")


def test_a_change_that_ends_at_any_step_is_made_whole_or_not_at_all(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = set()
    for last in range(1000):
        folder = tmp_path_factory.mktemp("killed")
        tables = Tables(folder)
        tables.open()
        change = tables.begin()
        for table, date in itertools.product("ab", ("2026-06-01", "2026-06-02")):
            lay(change, table, date, "old")
        tables.commit(change, State(batch=1))
        with monkeypatch.context() as patch:
            left = itertools.count(last, -1)
            for name in STEPS:
                patch.setattr(os, name, _until(left, getattr(os, name)))
            try:
                change_some(tables)
                is_done = True
            except Killed:
                is_done = False
        tables.close()
        assert contents(tables) == (NEW if tables.state.batch == 2 else OLD), last
        seen.add(tables.state.batch)
        again = Tables(folder)
        again.open()
        if again.state.batch == 1:
            change_some(again)
        assert contents(again) == NEW, last
        again.close()
        if is_done:
            break
    assert seen == {1, 2}
    assert last > 10


def _until(left: "itertools.count[int]", step: Callable[..., Any]) -> Callable[..., Any]:
    def counted(*arguments: Any, **named: Any) -> Any:
        if next(left) <= 0:
            raise Killed
        return step(*arguments, **named)

    return counted


def test_generations_do_not_pile_up(tables: Tables) -> None:
    for batch in range(5):
        change = tables.begin()
        lay(change, "a", "2026-06-03", str(batch))
        tables.commit(change, State(batch=batch))
    assert len(list((tables.folder / "_weir/generations").iterdir())) == 2
    assert len(contents(tables)) == len(OLD) + 5


@pytest.mark.parametrize("dangling", [False, True])
def test_a_link_that_is_lost_is_made_anew_to_the_newest_generation(
    tables: Tables, dangling: bool
) -> None:
    change_some(tables)
    commit_batches(tables, 2)
    tables.close()
    tables.current.unlink()
    if dangling:
        tables.current.symlink_to("_weir/generations/00000009")
    tables.open()
    assert contents(tables) == NEW
    assert tables.state == State(generation=2, batch=2)
    assert tables.checkpoint.exists()


def test_what_is_lost_with_the_newest_generation_is_read_again(tables: Tables) -> None:
    change_some(tables)
    commit_batches(tables, 2)
    tables.close()
    shutil.rmtree(tables.current.resolve())
    tables.open()
    assert contents(tables) == OLD
    assert not tables.checkpoint.exists()


def test_without_any_generation_all_is_read_again(tables: Tables) -> None:
    commit_batches(tables, 1)
    tables.close()
    shutil.rmtree(tables.current.resolve())
    tables.open()
    assert tables.state == State()
    assert not tables.checkpoint.exists()


def commit_batches(tables: Tables, last: int) -> None:
    """As Spark does when they are done."""
    (tables.checkpoint / "commits").mkdir(parents=True)
    for number in range(last + 1):
        (tables.checkpoint / "commits" / str(number)).touch()
        (tables.checkpoint / "commits" / f".{number}.crc").touch()


def test_a_generation_is_on_the_disk_under_its_name_before_the_link_moves(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    really_sync, really_rename = os.fsync, os.rename

    def sync(file: int) -> None:
        done.append(f"sync {Path(os.readlink(f'/proc/self/fd/{file}')).name}")
        really_sync(file)

    def rename(source: Path, target: Path) -> None:
        done.append(f"name {target.name}")
        really_rename(source, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "rename", rename)
    change_some(tables)
    after = done[done.index("name 00000002") :]
    assert after == [
        "name 00000002",
        "sync generations",
        "name tables",
        f"sync {tables.folder.name}",
    ]


def test_only_one_run_may_write(tables: Tables) -> None:
    with pytest.raises(InUse, match="another run"):
        Tables(tables.folder).open()
    tables.close()
    Tables(tables.folder).open()


def test_what_spark_writes_is_there_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    tables.open()
    for number in (1, 2):
        change = tables.begin()
        rows = spark.sql(f"SELECT 'row {number}' AS name, DATE '2026-06-01' AS date")
        change.add("kept", rows, f"change-{number}")
        change.replace("made", rows, ["2026-06-01", "2026-06-02"])
        change.replace_all("whole", rows)
        tables.commit(change, tables.state)
    names = {table: _names(spark, tables, table) for table in ("kept", "made", "whole")}
    assert names == {"kept": ["row 1", "row 2"], "made": ["row 2"], "whole": ["row 2"]}
    assert tables.read(spark, "missing", COLUMNS).count() == 0
    files = [path.name for path in tables.current.resolve().rglob("*") if path.is_file()]
    assert all(name.endswith(".parquet") for name in files if name != STATE)


def _names(spark: SparkSession, tables: Tables, table: str) -> list[str]:
    return sorted(row["name"] for row in tables.read(spark, table, COLUMNS).collect())
