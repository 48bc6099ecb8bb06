"""`weir restore`: make a data directory from a backup."""

import argparse
import sys

from origin.storage import backup


def run(arguments: argparse.Namespace) -> int:
    return backup.restore(
        arguments.backup, arguments.data_dir, sys.stdout, keep_damaged=arguments.keep_damaged
    )
