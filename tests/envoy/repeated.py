"""Whole modules of the gateway's hostile tests, once more, with Envoy in front.

    globals().update(repeated(attacks))
    WITHOUT = {"test_that_one": "why Envoy makes it another test"}

The fixture `arena_class` of this folder does the rest. `WITHOUT` may name one case, by its id.
"""

from types import ModuleType
from typing import Any


def repeated(module: ModuleType) -> dict[str, Any]:
    """Its tests, and the fixtures that they need."""
    return {name: thing for name, thing in vars(module).items() if not name.startswith("__")}
