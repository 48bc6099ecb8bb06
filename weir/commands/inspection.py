"""`weir fsck` and `weir dump`: a data directory read by people."""

import argparse
import sys

from origin.storage import inspect


def run_fsck(arguments: argparse.Namespace) -> int:
    return inspect.fsck(arguments.data_dir, sys.stdout)


def run_dump(arguments: argparse.Namespace) -> int:
    return inspect.dump(arguments.data_dir, arguments.stream, sys.stdout)
