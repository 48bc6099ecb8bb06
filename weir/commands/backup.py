"""`weir backup` and `weir restore`: a data directory, copied while it is in use, and put back."""

import argparse
import sys

from origin.storage import backup


def run_backup(arguments: argparse.Namespace) -> int:
    return backup.back_up(
        arguments.data_dir,
        arguments.backup,
        sys.stdout,
        base=arguments.base,
        keep_damaged=arguments.keep_damaged,
    )


def run_restore(arguments: argparse.Namespace) -> int:
    return backup.restore(
        arguments.backup, arguments.data_dir, sys.stdout, keep_damaged=arguments.keep_damaged
    )
