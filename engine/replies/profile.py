"""Which reply format a model writes, told from its chat template and its vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass

from . import families
from .families import Parser
from .output import Output
from .source import Source
from .tools import Tools


@dataclass(frozen=True, slots=True)
class Profile:
    """family: name of the tool-call format. reasoning: the tags around thinking, None where the model has none."""

    family: str
    parse: Callable[[Source, Output, Tools], Parser]
    reasoning: tuple[str, str] | None = None

    @property
    def own_channels(self) -> bool:
        """Reasoning and tools are told apart by the family's parser itself."""
        return self.family == "harmony"


# The first family one of whose marks stands in the template or among the special tokens is the model's.
_MARKS: tuple[tuple[str, tuple[str, ...], Callable[[Source, Output, Tools], Parser]], ...] = (
    ("harmony", ("<|channel|>",), families.harmony),
    ("minimax", ("<minimax:tool_call>",), families.minimax),
    ("kimi", ("<|tool_calls_section_begin|>",), families.kimi),
    ("deepseek-dsml", ("｜DSML｜",), families.deepseek_dsml),
    ("deepseek", ("<｜tool▁calls▁begin｜>",), families.deepseek),
    ("glm", ("<arg_key>",), families.glm),
    ("qwen-coder", ("<function=",), families.qwen_coder),
    ("mistral", ("[TOOL_CALLS]",), families.mistral),
    ("hermes", ("<tool_call>",), families.hermes),
    ("llama", ("<|python_tag|>", '{"name": function name, "parameters"'), families.llama),
)
DEFAULT_FAMILY = "hermes"  # what engine/tool_prompt.py teaches a model whose template knows no tools
_REASONING_TAGS = (("<think>", "</think>"), ("[THINK]", "[/THINK]"), ("<seed:think>", "</seed:think>"))


def profile_for(template: str, special_tokens: Container[str] = (), is_taught: bool = False) -> Profile:
    """is_taught: tools are described by engine/tool_prompt.py, whatever marks the vocabulary has."""
    family, parse = next(
        (
            (name, parse)
            for name, marks, parse in _MARKS
            if any(mark in template or mark in special_tokens for mark in marks)
        ),
        (DEFAULT_FAMILY, families.hermes),
    )
    reasoning = next((tags for tags in _REASONING_TAGS if tags[1] in template or tags[1] in special_tokens), None)
    profile = Profile(family, parse, reasoning)
    if is_taught and not profile.own_channels:
        return Profile(DEFAULT_FAMILY, families.hermes, reasoning)
    return profile
