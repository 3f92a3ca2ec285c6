"""Prints pyproject's dependencies, one a line: `python -m smoe_site.dependencies runtime|dev` (the Makefile's need)."""

import sys
import tomllib
from pathlib import Path


def main(group: str) -> None:
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    print(*(project["dependencies"] if group == "runtime" else project["optional-dependencies"][group]), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1])
