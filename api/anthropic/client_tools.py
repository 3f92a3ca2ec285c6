"""Tools that Anthropic's protocol defines and the client runs: a request names their type only, so their form is here.

Shapes: https://docs.anthropic.com/en/docs/agents-and-tools/tool-use (bash, text editor, memory)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_TYPE = re.compile(r"(bash|text_editor|memory)_(\d{8})")
_EDITOR_WITHOUT_UNDO = "20250429"  # the first; it also renamed what `insert` inserts
_STRING = {"type": "string"}
_INTEGER = {"type": "integer"}


@dataclass(frozen=True, slots=True)
class ClientTool:
    description: str
    input_schema: dict[str, Any]


def client_tool(kind: str | None) -> ClientTool | None:
    """The tool of a type like `bash_20250124`; None for others, which only the provider can run."""
    match = _TYPE.fullmatch(kind or "")
    if match is None:
        return None
    if match[1] == "text_editor":
        return _EDITOR if match[2] >= _EDITOR_WITHOUT_UNDO else _EDITOR_WITH_UNDO
    return _BASH if match[1] == "bash" else _MEMORY


def _told(schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {**schema, "description": description}


def _commands(names: tuple[str, ...], required: tuple[str, ...], **properties: dict[str, Any]) -> dict[str, Any]:
    """One of `names` and what each of them needs."""
    command = {"type": "string", "enum": list(names), "description": "What to do."}
    return {"type": "object", "properties": {"command": command, **properties}, "required": ["command", *required]}


_VIEW_RANGE = {
    "type": "array",
    "items": _INTEGER,
    "description": "For view of a file: its first and last line, counted from 1; -1 as the last is the file's end.",
}
_OF_FILES = {
    "file_text": _told(_STRING, "For create: what the file is to hold."),
    "old_str": _told(_STRING, "For str_replace: the text to replace, exactly as it stands in the file, and only once."),
    "new_str": _told(_STRING, "For str_replace: the text to put in its place."),
    "insert_line": _told(_INTEGER, "For insert: the line after which the text goes; 0 is the file's beginning."),
    "view_range": _VIEW_RANGE,
}
_INSERT_TEXT = _told(_STRING, "For insert: the text to insert.")

_BASH = ClientTool(
    "Runs a command in a bash shell that keeps its state from one call to the next.",
    {
        "type": "object",
        "properties": {
            "command": _told(_STRING, "The command to run."),
            "restart": {"type": "boolean", "description": "True starts the shell anew, and runs nothing."},
        },
        # Beside a restart it says nothing; but where it may be left out small models leave it out.
        "required": ["command"],
    },
)
_EDITOR = ClientTool(
    "Views, creates and edits text files; view of a directory lists it.",
    _commands(
        ("view", "create", "str_replace", "insert"),
        ("path",),
        path=_told(_STRING, "The file, or for view the directory."),
        **_OF_FILES,
        insert_text=_INSERT_TEXT,
    ),
)
_EDITOR_WITH_UNDO = ClientTool(
    "Views, creates and edits text files; view of a directory lists it. undo_edit takes the last edit of a file back.",
    _commands(
        ("view", "create", "str_replace", "insert", "undo_edit"),
        ("path",),
        path=_told(_STRING, "The file, or for view the directory."),
        **_OF_FILES
        | {"new_str": _told(_STRING, "For str_replace: the text to put in its place. For insert: the text to insert.")},
    ),
)
_MEMORY = ClientTool(
    "Files under /memories that last from one conversation to the next. View /memories before a task, and write down "
    "what later conversations need.",
    _commands(
        ("view", "create", "str_replace", "insert", "delete", "rename"),
        (),
        path=_told(_STRING, "The file or directory under /memories; for all commands but rename."),
        **_OF_FILES,
        insert_text=_INSERT_TEXT,
        old_path=_told(_STRING, "For rename: the path now."),
        new_path=_told(_STRING, "For rename: the new path."),
    ),
)
