"""Offsets as they were before they named their stream: still valid everywhere, and tests can make
them up."""


def nameless(position: int) -> str:
    return f"{'0' * 16}_{position:016}"


def unnamed(offset: str) -> str:
    """The same position without the name, to be compared with others'."""
    return "0" * 16 + offset[16:]
