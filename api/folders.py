"""Clients are told which file, never where it stands on this machine."""

from __future__ import annotations

import os
import re
from pathlib import Path

from django.conf import settings

# Of an absolute path all but its last part; a name such as org/model and an address have a word before the slash.
_FOLDERS = re.compile(r"(?<![\w:/.~-])(?:/[^\s/'\"`:]+)*/(?=[^\s/])")


def without_folders(text: str) -> str:
    """The folders that are known go first: their names may have spaces."""
    for folder in sorted(_known(), key=len, reverse=True):
        text = text.replace(f"{folder}{os.sep}", "")
    return _FOLDERS.sub("", text)


def _known() -> set[str]:
    launch = settings.SMOE
    files = (Path(os.path.abspath(file)) for file in (launch.engine, launch.vault, launch.scout) if file)
    folders = (launch.vault_dir, launch.checkpoints_dir, launch.data_dir, *(file.parent for file in files))
    return {str(folder) for folder in folders if folder.is_absolute() and folder != Path("/")}
