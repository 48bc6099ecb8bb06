import subprocess
import sys

from tests.helpers.processes import is_gone
from tests.helpers.rawhttp import wait_until
from wire.programs import packed_program

STARTER = """
import subprocess, sys
from wire.programs import end_with_parent
child = subprocess.Popen(["sleep", "60"], preexec_fn=end_with_parent)
print(child.pid, flush=True)
child.wait()
"""


def test_a_file_of_a_package_is_found() -> None:
    found = packed_program("pytest", "__init__.py")
    assert found is not None and found.is_file()
    assert packed_program("pytest", "bin/nothing") is None
    assert packed_program("no_such_package", "__init__.py") is None


def test_a_program_ends_with_the_process_that_started_it() -> None:
    command = [sys.executable, "-c", STARTER]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        program = int(starter.stdout.readline())
        starter.kill()
    wait_until(lambda: is_gone(program))
