"""What can be wrong with a vault's files, in words for the operator."""

from __future__ import annotations

from typing import Literal

Kind = Literal["not_a_vault", "incomplete", "invalid", "unreadable"]


class VaultError(Exception):
    """One line: which file, what is wrong where, what to do.

    `not_a_vault`: foreign bytes. `incomplete`: a half that may still be growing. `invalid`: damaged, or of a
    form that this version does not know. `unreadable`: the system refuses to read it.
    """

    def __init__(self, kind: Kind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
