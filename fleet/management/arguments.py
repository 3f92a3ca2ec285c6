"""What the commands' arguments have in common."""

from __future__ import annotations

from argparse import ArgumentTypeError

from django.core.exceptions import ValidationError

_LONGEST = 36_500  # days; a century, well within what a date can hold


def days(text: str) -> float:
    """An argument's type: a length of time that is neither over before it begins nor beyond the calendar."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= _LONGEST:
        raise ArgumentTypeError(f"{text!r} is no number of days above 0, up to {_LONGEST}")
    return number


def faults(error: ValidationError) -> str:
    """A row's faults, each with the name of its field as the command's argument has it."""
    told = [(field.replace("_", "-"), messages) for field, messages in error.message_dict.items()]
    return " ".join(f"{field}: {message}" for field, messages in told for message in messages)
