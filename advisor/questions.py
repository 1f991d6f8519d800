"""The questions, in words: what is asked, a sentence of help, and how to find out when unsure.

Plain data, with nothing heavy imported: the first question is on the screen before anything else loads.
Every text that a question shows stands here, so that another language is another table.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Question:
    """One of the six questions that choose the pipeline."""

    key: str
    asks: str
    help: str
    """One sentence, shown above the choices."""
    cautious: str
    """The side that `unsure` takes: the one that asks for less."""
    find_out: str
    """What to do, concretely, to answer it."""


SIX: tuple[Question, ...] = (
    Question(
        key="verifiable",
        asks="Can a program check whether an answer is right?",
        help="A number to compare, tests to run, a schema to meet. A judge's taste does not count.",
        cautious="no",
        find_out="write the check for 20 prompts by hand (compare a number, run tests, validate a schema) "
        "and see whether right answers pass it and wrong ones do not",
    ),
    Question(
        key="preference_pairs",
        asks="Do you have preference pairs?",
        help="The same prompt with a chosen and a rejected answer: from people, from a judge, or from "
        "rollouts that passed and failed.",
        cautious="no",
        find_out="look for rows that hold two answers to one prompt with a verdict between them, such as A/B "
        "votes, edits before and after, or thumbs up and down; some hundreds are enough to start",
    ),
    Question(
        key="long_cot",
        asks="Does a good answer need long chains of thought?",
        help="Worked reasoning of about a thousand tokens or more before the answer.",
        cautious="no",
        find_out="count the tokens of 20 good answers, reasoning included; most above 1,000 means yes",
    ),
    Question(
        key="limited_compute",
        asks="Is compute limited?",
        help="One GPU or a few for hours rather than days, or no GPU at all.",
        cautious="yes",
        find_out="count the GPUs and the hours that you may use; fewer than about 8 GPUs for a day means yes",
    ),
    Question(
        key="base_capable",
        asks="Does the base model already solve some of the prompts?",
        help="At least a few right answers when it is sampled several times, in a format that can be read.",
        cautious="no",
        find_out="sample 8 completions on each of 50 prompts at temperature 1 and count the prompts with at "
        "least one right answer; 10 or more of the 50 means yes",
    ),
    Question(
        key="large_scale",
        asks="Is the run large or long?",
        help="A model of about 30 B parameters or more, or RL for a thousand steps and more.",
        cautious="no",
        find_out="look up the model's parameter count and how many RL steps the budget pays for; "
        "30 B parameters or 1,000 steps means yes",
    ),
)

SIX_BY_KEY = {question.key: question for question in SIX}

CHOICES: tuple[tuple[str, str], ...] = (
    ("yes", "yes"),
    ("no", "no"),
    ("unsure", "unsure"),
)

TASKS: dict[str, str] = {
    "math": "a result that can be compared",
    "code": "programs that tests can run",
    "extraction": "text to fields, judged by a schema",
    "tool-calling": "the right function with the right arguments",
    "dialogue": "open conversation, judged by taste",
    "safety": "refusing and complying in the right places",
    "instruction": "following instructions of any kind",
}


@dataclass(frozen=True, kw_only=True)
class Detail:
    """A question after the six, answered with a choice or a line of text."""

    asks: str
    help: str = ""
    optional: str = ""
    """What leaving it out means; empty where an answer is needed."""


TASK = Detail(asks="What is the task?", help="It suggests a reward; on math and code, RL is DAPO.")
MODEL = Detail(
    asks="Model",
    help="A hub id such as Qwen/Qwen3-0.6B, or a folder with config.json and weights.",
)
REWARD = Detail(
    asks="Reward",
    help="What checks an answer: math_reward, code_reward, json_schema_reward, tool_call_reward, "
    "exact_answer, or a function of yours as file.py:function.",
)
DATA: dict[str, Detail] = {
    "demonstrations": Detail(
        asks="Demonstrations",
        help="A file of worked answers for SFT, one JSON object a line: prompt and completion, or messages.",
    ),
    "preferences": Detail(
        asks="Preferences",
        help="A file of pairs for DPO, one JSON object a line: prompt, chosen and rejected.",
    ),
    "prompts": Detail(
        asks="Prompts",
        help="A file of prompts for RL, one JSON object a line: prompt, and what the reward compares with, "
        "such as answer.",
    ),
}
EVAL = Detail(
    asks="Held-out prompts",
    help="A file of prompts that are never trained on, to measure with.",
    optional="hold some of the prompts out",
)
BUDGET: dict[str, Detail] = {
    "gpu_hours": Detail(asks="Budget in GPU hours", optional="no limit"),
    "usd": Detail(asks="Budget in US dollars", optional="no limit"),
    "wall_hours": Detail(asks="Hours on the clock", optional="no limit"),
}
