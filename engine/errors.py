"""What can go wrong with a generation, each with a sentence for the person who must act.

api/errors.py maps these to a status and a type per protocol; nothing else does.
"""

from __future__ import annotations


class GenerationError(Exception):
    """`message` names what, where and what to do; clients get it without the folders in it (api/folders.py)."""

    def __init__(self, message: str):
        super().__init__(message)
        self.message = message


class InvalidRequest(GenerationError):
    """The request itself is wrong. `param` is the field's path (`messages.0.content`)."""

    def __init__(self, message: str, param: str | None = None):
        super().__init__(message)
        self.param = param


class ContextOverflow(InvalidRequest):
    """The prompt (and max_tokens) do not fit the window."""

    def __init__(self, message: str, prompt_tokens: int, max_tokens: int, window: int):
        super().__init__(message, "messages")
        self.prompt_tokens = prompt_tokens
        self.max_tokens = max_tokens
        self.window = window


class PromptTooLong(InvalidRequest):
    """So much text that it is not even tokenized. Its first words and its code are those at which clients compact."""

    code = "context_length_exceeded"

    def __init__(self, most: int):
        super().__init__(
            f"prompt is too long: more than {most:,} characters, and this vault's window holds far fewer tokens. "
            "Send less of the conversation.",
            "messages",
        )


class ModelUnavailable(GenerationError):
    """The named vault is known and cannot be served, or there is none at all."""


class TurnedAway(GenerationError):
    """Nothing was begun for it: it may come again."""

    def __init__(self, message: str, retry_after: int):
        super().__init__(message)
        self.retry_after = retry_after  # seconds


class QueueFull(TurnedAway):
    pass


class LimitReached(TurnedAway):
    """A limit of the client's key, not of the server."""


class EngineFailed(GenerationError):
    """The engine could not start, or ended during this generation. The next request respawns it."""


class ShuttingDown(GenerationError):
    """The server is on its way out."""
