"""The README's table of launch flags says what the program does."""

import re
from dataclasses import fields
from pathlib import Path

from smoe_site import options

README = (options.BASE_DIR / "README.md").read_text()


def shown(default):
    if isinstance(default, Path):
        return f"`{default.relative_to(options.BASE_DIR)}`"
    return "" if default in (None, "", ()) else f"`{default}`"


def test_every_launch_flag_stands_in_the_readme_with_its_default_and_help():
    rows = {
        flag: (default, help)
        for flag, default, help in re.findall(r"^\| `(--[\w-]+)` \| (.*?) \| (.*?) \|$", README, re.MULTILINE)
    }
    assert rows == {
        options.flag(f.name): (shown(f.default), f.metadata["help"].replace("|", "\\|"))
        for f in fields(options.Options)
    }
