"""Why the library takes a grammar or not, in words for whoever wrote the schema."""

from __future__ import annotations

import re

from llguidance import LLMatcher

_ONE_OF = (
    "alternatives of oneOf must exclude each other visibly (by type, or by a required property with other constants); "
    "use anyOf where they do not."
)
_QUOTED_LINE = re.compile(r"\n +\d+ \| ")


def fault_of(grammar: str) -> str:
    """ "" where a Lark grammar compiles."""
    return reason(LLMatcher.validate_grammar(LLMatcher.grammar_from_lark(grammar)))


def reason(error: str) -> str:
    """The library's words, without its own state, or the grammar that it quotes where the fault is in a schema."""
    text = error.partition("<state>")[0].replace("NoExtensionBias", "no finite text fits it")
    _, of_schema, fault = text.partition("failed to compile JSON schema: ")
    if of_schema:
        text = _QUOTED_LINE.split(fault)[0].replace("Unimplemented keys:", "these keywords are not supported:")
        text = text.replace("oneOf constraints are not supported. Enable", _ONE_OF + "\0").partition("\0")[0]
    return " ".join(text.split())[:300]
