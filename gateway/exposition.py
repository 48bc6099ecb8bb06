"""The metrics of several workers as one Prometheus text (pure).

Every sample gets a `worker` label. HELP and TYPE appear once per family, and all samples of a
family are consecutive, as the format requires.
"""

from collections.abc import Mapping

NAMES = ("HELP", "TYPE")


def merge_metrics(texts: Mapping[int, str]) -> str:
    """`texts` are the workers' metrics, by worker number."""
    families: dict[str, _Family] = {}
    for worker, text in texts.items():
        _collect(families, worker, text)
    return "".join(
        line + "\n"
        for family in families.values()
        for line in (*family.about.values(), *family.samples)
    )


def gauge_text(name: str, about: str, value: float) -> str:
    return f"# HELP {name} {about}\n# TYPE {name} gauge\n{name} {float(value)}\n"


class _Family:
    __slots__ = ("about", "samples")

    def __init__(self) -> None:
        self.about: dict[str, str] = {}
        self.samples: list[str] = []


def _collect(families: dict[str, _Family], worker: int, text: str) -> None:
    family = _Family()  # in no result: samples before any name are dropped
    for line in text.split("\n"):
        if line.startswith("# "):
            _, kind, name, *_ = [*line.split(" ", 3), "", ""]
            if kind in NAMES:
                family = families.setdefault(name, _Family())
                family.about.setdefault(kind, line)
        elif line:
            family.samples.append(label_sample(line, worker))


def label_sample(line: str, worker: int) -> str:
    """`name{a="b"} 1` as `name{worker="3",a="b"} 1`."""
    end = next((at for at, sign in enumerate(line) if sign in "{ "), len(line))
    name, rest = line[:end], line[end:]
    if not rest.startswith("{"):
        return f'{name}{{worker="{worker}"}}{rest}'
    comma = "" if rest.startswith("{}") else ","
    return f'{name}{{worker="{worker}"{comma}{rest[1:]}'
