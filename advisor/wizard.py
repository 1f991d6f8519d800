"""The questions, one after the other, on a terminal; every answer is kept in a file as soon as it is given.

Nothing heavy is imported before the first question is on the screen.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from advisor import prompts
from advisor.questions import CHOICES, SIX


def load_draft(path: Path) -> dict[str, Any]:
    """What `path` already answers; empty where there is no such file."""
    if not path.exists():
        return {}
    from advisor.answers import read_draft

    return read_draft(path)


def ask_six(draft: dict[str, Any], path: Path) -> dict[str, Any]:
    """Ask the six questions, those without an answer in `draft` only, or all of them where it answers all.

    Returns the draft with the answers, which is also what `path` holds after each of them.
    """
    answers = dict(draft)
    missing = [question for question in SIX if question.key not in draft]
    if missing and len(missing) < len(SIX):
        prompts.say(f"{path} holds {len(SIX) - len(missing)} of the {len(SIX)} answers; these are left.\n")
    elif not missing:
        prompts.say(f"{path} holds all {len(SIX)} answers; Enter keeps one.\n")
    for number, question in enumerate(SIX, 1):
        if missing and question not in missing:
            continue
        unsure = f"unsure takes {question.cautious}, the cautious side, and says how to find out"
        answers[question.key] = prompts.choose(
            f"{number}/{len(SIX)} {question.asks}",
            CHOICES,
            help=f"{question.help}\n{unsure}",
            default=answers.get(question.key, "yes"),
            keys="ynu",
        )
        save(answers, path)
    return answers


def save(answers: dict[str, Any], path: Path) -> None:
    """Keep what is answered so far."""
    from advisor.answers import write_draft

    write_draft(answers, path)
