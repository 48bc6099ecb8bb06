"""What a machine may lack: a reason to skip, but a failure where everything must run."""

import os

import pytest


def need(condition: object, reason: str) -> None:
    """Skip the test unless the condition holds; fail it when WEIR_REQUIRE_ALL=1."""
    if condition:
        return
    if os.environ.get("WEIR_REQUIRE_ALL") == "1":
        pytest.fail(f"WEIR_REQUIRE_ALL=1: {reason}", pytrace=False)
    pytest.skip(reason)
