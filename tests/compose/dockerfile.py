"""A Dockerfile as data: its stages, each with its instructions in order."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Stage:
    name: str
    base: str  # an image, or a stage above
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def all(self, keyword: str) -> list[str]:
        return [rest for name, rest in self.instructions if name == keyword]

    def last(self, keyword: str) -> str | None:
        found = self.all(keyword)
        return found[-1] if found else None


def read_stages(path: Path) -> dict[str, Stage]:
    stages: dict[str, Stage] = {}
    text = re.sub(r"^\s*#.*\n", "", path.read_text(), flags=re.MULTILINE)
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        keyword, _, rest = line.strip().partition(" ")
        if keyword == "FROM":
            base, _, name = rest.partition(" AS ")
            current = stages[name] = Stage(name, base)
        elif keyword:
            current.instructions.append((keyword, rest.strip()))
    return stages


def entrypoint_of(stage: Stage) -> list[str]:
    found: list[str] = json.loads(stage.last("ENTRYPOINT") or "[]")
    return found
