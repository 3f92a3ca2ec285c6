"""A reply's text -> reasoning, text and tool calls, as it streams, by the model's family.

`ReplyParser(profile, ...)` is fed the reply with its special tokens visible and gives `Piece`s back.
"""

from .output import Piece, Reasoning, Text
from .parser import ReplyParser
from .profile import Profile, profile_for

__all__ = ["Piece", "Profile", "Reasoning", "ReplyParser", "Text", "profile_for"]
