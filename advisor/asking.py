"""Asking the questions one after the other; every answer is kept in a file as soon as it is given.

Nothing heavy is imported before the first question is on the screen.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from advisor import prompts
from advisor.questions import BUDGET, CHOICES, DATA, EVAL, MODEL, REWARD, SIX, TASK, TASKS, Detail
from estimators.errors import AdvisorError

if TYPE_CHECKING:
    from advisor.answers import Answers
    from pipelines.datasets.report import DataReport

Draft = dict[str, Any]
"""Keys of Answers with plain values: what is answered so far."""


def load_draft(path: Path) -> Draft:
    """What `path` already answers; empty where there is no such file."""
    if not path.exists():
        return {}
    from advisor.answers import read_draft

    return read_draft(path)


def save(draft: Draft, path: Path) -> None:
    """Keep what is answered so far."""
    with prompts.uninterrupted():
        from advisor.answers import write_draft

        write_draft(draft, path)


def ask_six(draft: Draft, path: Path) -> Draft:
    """Ask the six questions, those without an answer in `draft` only, or all of them where it answers all.

    Returns the draft with the answers, which is also what `path` holds after each of them.
    """
    missing = [question for question in SIX if question.key not in draft]
    if missing and len(missing) < len(SIX):
        prompts.say(f"{path} holds {len(SIX) - len(missing)} of the {len(SIX)} answers; these are left.\n")
    elif not missing:
        prompts.say(f"{path} holds all {len(SIX)} answers; Enter keeps one.\n")
    return _ask_six(draft, path, all_of_them=not missing)


def _ask_six(draft: Draft, path: Path, *, all_of_them: bool) -> Draft:
    answers = dict(draft)
    for number, question in enumerate(SIX, 1):
        if question.key in draft and not all_of_them:
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


def ask_everything(path: Path) -> Answers:
    """The six questions and the rest, from where an earlier call was left; returns what `path` then holds."""
    draft = load_draft(path)
    how = _how_to_go_on(draft, path) if draft else "open"
    draft = _ask_six(draft, path, all_of_them=how == "all")
    Details(draft, path, how).ask()

    from advisor.answers import read_answers

    return read_answers(path)


How = Literal["as they are", "open", "all"]
"""Which questions to ask where a file has answers: none but what is missing, those left open, or all."""


def _how_to_go_on(draft: Draft, path: Path) -> How:
    """What to do with the answers of an earlier time."""
    from advisor.consistency import missing_keys

    choices = [("open", "ask the questions that are open"), ("all", "go through all questions again")]
    if not missing_keys(draft):
        choices.insert(0, ("as they are", "use them as they are"))
    picked = prompts.choose(f"{path} holds answers of an earlier time", choices)
    return cast(How, picked)


class Details:
    """The questions after the six: which of them are asked follows from the pipeline."""

    def __init__(self, draft: Draft, path: Path, how: How) -> None:
        self.draft = draft
        self.path = path
        self.how = how

    def ask(self) -> None:
        """Ask what the pipeline needs and is not answered."""
        from advisor import checks
        from advisor.consistency import TASK_REWARDS
        from pipelines.methods import METHODS

        self._ask_task()
        self._line("model", MODEL, self._show_model)
        pipeline = self._pipeline()
        stages: dict[str, str] = {METHODS[stage].data: stage for stage in pipeline}
        if any(METHODS[stage].is_rl for stage in pipeline):
            usual = TASK_REWARDS.get(self.draft.get("task") or "", "")
            self._line("reward", REWARD, checks.reward, suggest=usual)
        for kind, question in DATA.items():
            if kind in stages:
                check = partial(
                    checks.data_file,
                    stage=stages[kind],
                    reward_name=self.draft.get("reward"),
                    model_name=self.draft.get("model"),
                )
                self._file(f"data.{kind}", question, check)
        self._file("data.eval", EVAL, self._eval_check(stages))
        for key, question in BUDGET.items():
            most = checks.MOST_USD if key == "usd" else checks.MOST_HOURS
            self._line(f"budget.{key}", question, partial(checks.amount, most=most))

    def _pipeline(self) -> tuple[str, ...]:
        from advisor.answers import Answers
        from advisor.rules import case_of, decide

        return decide(case_of(Answers.model_validate(self.draft))).pipeline

    def _ask_task(self) -> None:
        if self.how == "as they are" or ("task" in self.draft and self.how == "open"):
            return
        choices = [*((name, f"{name}: {what}") for name, what in TASKS.items()), ("", "none of these")]
        task = prompts.choose(TASK.asks, choices, help=TASK.help, default=self.draft.get("task") or "")
        self._keep("task", task or None)

    def _show_model(self, text: str) -> str:
        from advisor import checks
        from advisor.display import show_model

        model = checks.model(text)
        prompts.say(show_model(model))
        return model

    def _eval_check(self, stages: dict[str, str]) -> Callable[[str], DataReport]:
        """The check of a file of held-out prompts, which is none of those trained on."""
        from advisor import checks

        trained_on = {k: v for k, v in (self.draft.get("data") or {}).items() if v and k in stages}
        reward = self.draft.get("reward") if "prompts" in stages else None
        return partial(checks.eval_file, trained_on=trained_on, reward_name=reward)

    def _file(self, key: str, question: Detail, check: Callable[[str], DataReport]) -> None:
        """Ask for a data file, and show how it reads."""
        from advisor.display import show_data

        def path_of(text: str) -> str:
            text = self._known_columns(text, key.removeprefix("data."))
            prompts.say(show_data(check(text)))
            return text

        self._line(key, question, path_of, path=True)

    def _known_columns(self, text: str, kind: str) -> str:
        """`text`, or the file that is written where its columns have no known names: asks which is which."""
        from advisor import checks
        from advisor.display import shorten

        row = checks.unknown_columns(text)
        if not row:
            return text
        prompts.say(f"  {text} has the columns {', '.join(row)}.")
        mapping: dict[str, str] = {}
        for needed in checks.columns_needed(kind, self.draft.get("reward")):
            left = [name for name in row if name not in mapping.values()]
            choices = [(name, f"{name}: {shorten(row[name], 40)}") for name in left]
            column = prompts.choose(f"Which is the {needed}?", [*choices, ("", "none of them")])
            if not column:
                raise ValueError(f"{text} has no column for {needed}")
            mapping[needed] = column
        return checks.write_renamed(text, mapping)

    def _line(
        self,
        key: str,
        question: Detail,
        check: Callable[[str], Any],
        *,
        suggest: str = "",
        path: bool = False,
    ) -> None:
        """Ask for the line `key`, unless it is answered already and still passes its check."""
        old = self._get(key)
        if old is not None and self.how != "all":
            try:
                check(str(old))
            except (ValueError, AdvisorError) as reason:
                prompts.say(prompts.complaint(f"{key} is {old} in {self.path}: {reason}"))
                old = None
            else:
                return
        elif old is None and question.optional and self.how == "as they are":
            return
        self._keep(
            key,
            prompts.line(
                question.asks,
                check,
                help=question.help,
                default=suggest if old is None else str(old),
                optional=question.optional,
                path=path,
            ),
        )

    def _get(self, key: str) -> Any:
        block, _, name = key.rpartition(".")
        return (self.draft.get(block) or {}).get(name) if block else self.draft.get(name)

    def _keep(self, key: str, value: Any) -> None:
        """Set `key` in the draft, and keep the draft."""
        block, _, name = key.rpartition(".")
        if block:
            self.draft[block] = {**(self.draft.get(block) or {}), name: value}
        else:
            self.draft[name] = value
        save(self.draft, self.path)
