"""A database that cannot be used, in a sentence for the person who can change that."""

from __future__ import annotations

from django.conf import settings
from django.db import DatabaseError, InterfaceError, OperationalError

OUTAGES = (OperationalError, InterfaceError)  # other errors of the database are the program's own
_ADVICE = {
    "disk is full": "make room on its disk",
    "no space left": "make room on its disk",
    "locked": "another program holds it: try again, or end that program",
    "readonly": "let the server's user write it and its folder",
    "unable to open": "let the server's user write it and its folder",
    "not a database": "put a copy back, or move it away and begin with a new one (`manage.py migrate`)",
    "malformed": "put a copy back, or move it away and begin with a new one (`manage.py migrate`)",
    "no such": "`manage.py migrate` prepares a new one; SMOE_DATA_DIR or DATABASE_URL names another",
    "does not exist": "`manage.py migrate` prepares a new one; SMOE_DATA_DIR or DATABASE_URL names another",
}
_ELSE = "see that its server runs, and that DATABASE_URL names it" if settings.DATABASE_URL else "see the server's log"


def sentence(error: DatabaseError) -> str:
    """Without folders: pages show it to whoever asks."""
    return f"The database cannot be used ({_reason(error)}): {_advice(error)}."


def sentence_with_place(error: DatabaseError) -> str:
    """For the terminal."""
    name = "of DATABASE_URL" if settings.DATABASE_URL else settings.DATABASES["default"]["NAME"]
    return f"The database {name} cannot be used ({_reason(error)}): {_advice(error)}."


def _reason(error: DatabaseError) -> str:
    return str(error).strip().rstrip(".").partition("\n")[0]


def _advice(error: DatabaseError) -> str:
    said = str(error).lower()
    return next((advice for words, advice in _ADVICE.items() if words in said), _ELSE)
