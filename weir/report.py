"""`weir report`: access logs and stream state to tables and a report, with Spark.

Spark comes with the extra `spark` and needs Java; both are looked for before anything else is done.
What Java has to say goes to a file of the run, so that the terminal shows the run.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from weir.exits import RequestFailed
from weir.state import token_of
from wire.settings import SettingsError

JAVA_LOG = Path("_weir/spark.log")


def run_report(arguments: argparse.Namespace) -> int:
    # Executors have folders of their own to start from.
    logs, out = Path(arguments.logs).absolute(), Path(arguments.out).absolute()
    if not logs.is_dir():
        raise SettingsError("--logs", f"{logs} is not a folder")
    _need_spark()
    (out / JAVA_LOG).parent.mkdir(parents=True, exist_ok=True)

    from pyspark.errors import PySparkException

    from spark.progress import Progress
    from spark.run import Options, run
    from spark.session import start
    from spark.tables import InUse

    progress = Progress(sys.stderr)
    progress.doing(f"starting Spark on {arguments.master}")
    with _errors_to(out / JAVA_LOG):
        session = start(arguments.master)
    options = Options(
        logs=logs,
        out=out,
        origin=arguments.origin or "",
        token=token_of(arguments) or "",
        streams=tuple(arguments.stream),
        buckets=tuple(arguments.bucket),
        watch=arguments.watch,
    )
    try:
        run(session, options, progress)
    except InUse as error:
        raise SettingsError("--out", str(error)) from None
    except PySparkException as error:
        reason = (error.getMessage() or str(error)).strip().partition("\n")[0]
        raise RequestFailed(f"Spark: {reason} (see {out / JAVA_LOG})") from None
    except KeyboardInterrupt:
        return 130
    finally:
        session.stop()
    progress.done(f"report: {out / 'report.html'}, tables: {out / 'tables'}")
    return 0


def _need_spark() -> None:
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        raise SettingsError("weir report", "needs Spark: pip install 'weir-gateway[spark]'")
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else "java"
    if shutil.which(java) is None:
        raise SettingsError("weir report", "needs Java 17: apt-get install openjdk-17-jre-headless")


@contextmanager
def _errors_to(path: Path) -> Iterator[None]:
    """Processes that are started meanwhile write their errors to that file."""
    sys.stderr.flush()
    kept = os.dup(2)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(file, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(file)
