"""`weir dump`: show what a data directory holds."""

import argparse
import sys

from origin.storage import inspect


def run(arguments: argparse.Namespace) -> int:
    return inspect.dump(arguments.data_dir, arguments.stream, sys.stdout)
