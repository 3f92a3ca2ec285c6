"""Constrained output: a request's schema, grammar or required tool call -> the set of tokens allowed next.

`grammar_for` writes one Lark grammar for the whole reply; `TokenMasks` follows it token by token with llguidance
(taken over xgrammar because that needs torch at run time).
"""

from .grammar import grammar_for, wants_strict_calls
from .masks import TokenMasks, Vocabulary

__all__ = ["TokenMasks", "Vocabulary", "grammar_for", "wants_strict_calls"]
