"""`weir backup`: copy a data directory while it is in use."""

import argparse
import sys

from origin.storage import backup


def run(arguments: argparse.Namespace) -> int:
    return backup.back_up(
        arguments.data_dir,
        arguments.backup,
        sys.stdout,
        base=arguments.base,
        keep_damaged=arguments.keep_damaged,
    )
