"""`weir report`: tables and a report from access logs and stream state, with Spark.

Spark comes with the extra `spark` and needs Java; both are checked first. Java's output goes to a
file, so that the terminal shows only our progress.
"""

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from types import FrameType
from typing import TextIO

from spark.options import token_fault, url_fault
from weir.client.access import key_beside, named_key, token_of
from weir.exits import RequestFailed
from wire.settings import SettingsError

JAVA_LOG = Path("_weir/spark.log")
PRIVATE = 0o027  # logs are private, and so are tables made from them


def run(arguments: argparse.Namespace) -> int:
    before = os.umask(PRIVATE)
    try:
        return _run(arguments)
    finally:
        os.umask(before)


def _run(arguments: argparse.Namespace) -> int:
    # Executors have working directories of their own.
    logs, out = Path(arguments.logs).absolute(), Path(arguments.out).absolute()
    origin, token = arguments.origin or "", token_of(arguments) or ""
    _check_folders(logs, out)
    if origin and (fault := url_fault(origin)):
        raise SettingsError("--origin", fault)
    if fault := token_fault(token):
        raise SettingsError("--token", fault)
    access_key = named_key() or key_beside(logs, origin)
    _need_spark()
    (out / JAVA_LOG).parent.mkdir(parents=True, exist_ok=True)

    from pyspark.errors import PySparkException

    from spark.http import SourceError
    from spark.progress import Progress
    from spark.run import Options
    from spark.run import run as make_report
    from spark.session import start
    from spark.tables import InUse

    options = Options(
        logs=logs,
        out=out,
        origin=origin,
        token=token,
        access_key=access_key,
        streams=tuple(arguments.stream),
        buckets=tuple(arguments.bucket),
        watch=arguments.watch,
    )
    stop = Event()
    with _errors_to(out / JAVA_LOG) as terminal:
        progress = Progress(terminal)
        progress.doing(f"starting Spark on {arguments.master}")
        session = start(arguments.master)
        if arguments.watch:
            stop_by_signal(stop)
        try:
            make_report(session, options, progress, stop)
        except InUse as error:
            raise SettingsError("--out", str(error)) from None
        except Exception as error:
            if isinstance(error, SourceError):
                raise RequestFailed(str(error)) from None
            # Java may have been stopped before us.
            if not stop.is_set() and isinstance(error, PySparkException):
                reason = (error.getMessage() or str(error)).strip().partition("\n")[0]
                raise RequestFailed(f"Spark: {reason} (see {out / JAVA_LOG})") from None
            if not stop.is_set():
                raise
        except KeyboardInterrupt:
            return 130
        finally:
            with suppress(Exception):  # Java may be gone
                session.stop()
        progress.done(f"report: {out / 'report.html'}, tables: {out / 'tables'}")
    return 0


def _check_folders(logs: Path, out: Path) -> None:
    if not logs.is_dir():
        raise SettingsError("--logs", f"{logs} is not a folder")
    if not os.access(logs, os.R_OK | os.X_OK):
        raise SettingsError("--logs", f"{logs} cannot be read")
    read, written = logs.resolve(), out.resolve()
    if written.is_relative_to(read) or read.is_relative_to(written):
        raise SettingsError("--out", f"{out} and {logs} must not contain one another")


def stop_by_signal(stop: Event) -> None:
    """The first signal ends the run after the current step, the second one at once."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)


def _need_spark() -> None:
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        raise SettingsError(
            "weir report",
            "needs Spark: `make setup` in a checkout, or pip install 'weir-gateway[spark]'",
        )
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else "java"
    if shutil.which(java) is None:
        raise SettingsError("weir report", "needs Java 17: apt-get install openjdk-17-jre-headless")


@contextmanager
def _errors_to(path: Path) -> Iterator[TextIO]:
    """Send standard error, also that of child processes, to the file; yield the previous one."""
    sys.stderr.flush()
    kept = os.dup(2)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 2)
    os.close(file)
    try:
        with open(kept, "w", closefd=False) as terminal:
            yield terminal
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
