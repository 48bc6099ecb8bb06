"""`weir fsck`: check a data directory."""

import argparse
import sys

from origin.storage import inspect


def run(arguments: argparse.Namespace) -> int:
    return inspect.fsck(arguments.data_dir, sys.stdout)
