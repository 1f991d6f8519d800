"""The errors a user can meet. Each carries one message with its remedy, and an exit code.

AdvisorError
 ├── BadInput        1  a file, key, value or name that the user can mend
 ├── DoesNotFit      1  the plan needs more than the hardware has
 ├── StageFailed     3  a stage process ended without its model
 └── Interrupted   130  Ctrl-C, with how to go on

Anything else that reaches the command line is a bug of ours.
"""

from __future__ import annotations


class AdvisorError(Exception):
    """Base of every error that is shown to a user as one message, without a traceback."""

    exit_code = 1


class BadInput(AdvisorError):
    """Something the user wrote cannot be used: says what, where, and the nearest thing that can."""


class DoesNotFit(AdvisorError):
    """The work needs more memory than there is: says both numbers and the cheapest way out."""


class StageFailed(AdvisorError):
    """A stage process ended without finishing: says why, the end of its log, and how to resume."""

    exit_code = 3


class Interrupted(AdvisorError):
    """The user stopped it: says how to go on."""

    exit_code = 130
