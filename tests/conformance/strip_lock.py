"""Remove the web addresses from package-lock.json files: `npm ci` needs only the hashes."""

import json
import sys
from pathlib import Path


def main(paths: list[str]) -> None:
    for path in map(Path, paths):
        lock = json.loads(path.read_text())
        for package in lock["packages"].values():
            for field in ("funding", "resolved"):
                package.pop(field, None)
        path.write_text(json.dumps(lock, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
