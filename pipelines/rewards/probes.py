"""Completions that a reward must pay, and completions that it must not: made from the rows themselves."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from pipelines.rewards.text import content_text

Row = dict[str, Any]
GOLD_COLUMNS = ("answer", "tests", "schema", "tool_calls", "entry", "solution", "gold", "target", "label",
                "ground_truth", "reference", "expected", "completion")  # fmt: skip
PROGRAM_COLUMNS = ("solution", "canonical_solution", "code", "reference_solution", "completion")
MAX_SPRAY = 40


def gold_column(row: Row) -> str | None:
    """The column that holds what a right completion must reach."""
    return next((name for name in GOLD_COLUMNS if row.get(name) not in (None, "")), None)


def gold_completions(row: Row) -> list[Any]:
    """Completions that state the row's gold, in the usual forms; the reward must pay one of them in full.

    Empty where the row holds no gold that can be stated (tests without a reference program, a schema).
    """
    column = gold_column(row)
    if column == "tests":
        programs = [
            row[name] for name in PROGRAM_COLUMNS if isinstance(row.get(name), str) and row[name].strip()
        ]
        return [p if "```" in p else f"```python\n{p}\n```" for p in programs[:1]]
    if column == "schema":
        values = [row[name] for name in ("answer", "completion", "solution") if row.get(name)]
        return [v if isinstance(v, str) else json.dumps(v) for v in values[:1]]
    if column == "tool_calls":
        return _calls_as_completions(row["tool_calls"])
    gold = gold_as_text(row)
    if gold is None:
        return []
    return [
        f"\\boxed{{{_last_answer(gold)}}}",
        gold,
        f"The final answer is {_last_answer(gold)}.",
        f"<think>Let me see.</think>\n<answer>{gold}</answer>",
        f"<think>Let me see.</think>\n\\boxed{{{_last_answer(gold)}}}",
        f"#### {_last_answer(gold)}",
    ]


def gold_as_text(row: Row) -> str | None:
    """The gold of a row as a text, where it is a short one."""
    column = gold_column(row)
    if column == "entry":
        column = "answer" if row.get("answer") else None
    if column is None or column in ("tests", "schema", "tool_calls"):
        return None
    value = row[column]
    if isinstance(value, list):
        value = content_text(value[-1].get("content")) if value and isinstance(value[-1], dict) else None
    return None if value is None else str(value)


def _last_answer(gold: str) -> str:
    from pipelines.rewards.maths.reward import gold_text

    return gold_text(gold)


def _calls_as_completions(calls: Any) -> list[Any]:
    if isinstance(calls, str):
        try:
            calls = json.loads(calls)
        except ValueError:
            return []
    calls = calls if isinstance(calls, list) else [calls]
    functions = [c.get("function", c) for c in calls if isinstance(c, dict)]
    text = "\n".join(f"<tool_call>\n{json.dumps(f)}\n</tool_call>" for f in functions)
    structured = [{"type": "function", "function": f} for f in functions]
    return [text, [{"role": "assistant", "content": "", "tool_calls": structured}]]


def prompt_text(row: Row) -> str:
    """The text of a row's prompt, whatever its shape."""
    prompt = row.get("prompt")
    if isinstance(prompt, list):
        return "\n".join(content_text(m.get("content")) for m in prompt if isinstance(m, dict))
    return str(prompt or "")


def spray(golds: Sequence[str], own: str) -> list[str]:
    """Other rows' golds with this row's among them, never last: what a guesser would print."""
    others = [g for g in dict.fromkeys(golds) if g != own][:MAX_SPRAY]
    if not others:
        others = [own + "1", own + "2"]
    middle = len(others) // 2
    return [*others[:middle], own, *others[middle:]]


EMPTY_FUNCTION = "```python\ndef {name}(*args, **kwargs):\n    pass\n```"
ALWAYS_EQUAL = (
    "```python\nclass Equal(int):\n    def __eq__(self, other):\n        return True\n"
    "    def __ne__(self, other):\n        return False\n    __hash__ = int.__hash__\n\n"
    "def {name}(*args, **kwargs):\n    return Equal(0)\n```"
)
EXIT = "```python\nimport sys\n\ndef {name}(*args, **kwargs):\n    return None\n\nsys.exit(0)\n```"

Probe = Callable[[Row, Sequence[str]], str | None]


def _sprayed(row: Row, golds: Sequence[str]) -> str | None:
    own = gold_as_text(row)
    return None if own is None else "The answer is one of: " + ", ".join(spray(golds, own))


def _boxed_spray(row: Row, golds: Sequence[str]) -> str | None:
    own = gold_as_text(row)
    return None if own is None else "\\boxed{" + ", ".join(spray(golds, own)) + "}"


def _box_per_candidate(row: Row, golds: Sequence[str]) -> str | None:
    own = gold_as_text(row)
    return None if own is None else " ".join(f"\\boxed{{{g}}}" for g in spray(golds, own))


def _inside_wrong(row: Row, golds: Sequence[str]) -> str | None:
    own = gold_as_text(row)
    if own is None:
        return None
    wrong = next((g for g in golds if g != own), own + "1")
    return f"It might look like {own}, but that is wrong. The final answer is \\boxed{{{wrong}}}."


def _named(template: str) -> Probe:
    def make(row: Row, golds: Sequence[str]) -> str | None:
        return template.replace("{name}", str(row.get("entry_point") or "solution").split(".")[0])

    return make


PROBES: dict[str, Probe] = {
    "empty completion": lambda row, golds: "",
    "the prompt echoed": lambda row, golds: prompt_text(row) or None,
    "I don't know": lambda row, golds: "I don't know.",
    "all golds sprayed": _sprayed,
    "all golds in one box": _boxed_spray,
    "a box per candidate": _box_per_candidate,
    "the gold inside a wrong answer": _inside_wrong,
    "pass": lambda row, golds: "```python\npass\n```",
    "an empty function": _named(EMPTY_FUNCTION),
    "sys.exit(0)": _named(EXIT),
    "always-equal objects": _named(ALWAYS_EQUAL),
}
"""What must not be paid, the cheapest first."""

QUICK = ("empty completion", "the prompt echoed", "I don't know", "all golds sprayed", "a box per candidate",
         "the gold inside a wrong answer", "sys.exit(0)", "always-equal objects")  # fmt: skip
"""The probes of the check before a run."""
