"""What a line typed into the wizard must be: a check returns the value, or says what is wrong.

A check raises ValueError or BadInput with one sentence; the question is then asked again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from estimators.record import nearest
from pipelines.methods import METHODS

if TYPE_CHECKING:
    from pipelines.datasets.report import DataReport

ROWS_READ = 1000
MOST_HOURS = 10_000_000
MOST_USD = 1_000_000_000


def model(text: str) -> str:
    """A hub id or a folder whose shape can be read."""
    from estimators.models import find_shape

    if not text:
        raise ValueError(
            "a model is needed: a hub id such as Qwen/Qwen3-0.6B, or a folder with its config.json"
        )
    if text.endswith(".json"):
        raise ValueError("a config.json can be sized, but not trained: name the folder that it lies in")
    folder = Path(text).expanduser()
    if folder.is_file():
        raise ValueError(
            f"{text} is a file; a folder with config.json and the weights is needed, or a hub id"
        )
    if not folder.is_dir() and text.startswith((".", "/", "~")):
        raise ValueError(f"{text}: no such folder")
    find_shape(text)
    return str(folder) if folder.is_dir() else text


def existing_file(text: str) -> Path:
    """A file that exists, can be read and holds something."""
    if not text:
        raise ValueError("a file is needed")
    path = Path(text).expanduser()
    if path.is_dir():
        raise ValueError(f"{text} is a folder; a file is needed")
    if not path.exists():
        siblings = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        guess = nearest(path.name, siblings)
        raise ValueError(
            f"{text}: no such file" + (f'; did you mean "{path.parent / guess}"?' if guess else "")
        )
    if not path.is_file():
        raise ValueError(f"{text} is not a regular file")
    try:
        with path.open("rb") as file:
            if not file.read(4096).strip():
                raise ValueError(f"{text} is empty")
    except OSError as error:
        raise ValueError(f"{text}: cannot be read ({error.strerror})") from None
    return path


def data_file(
    text: str, stage: str, reward_name: str | None = None, model_name: str | None = None
) -> DataReport:
    """A report on a file that the method `stage` can train on; the first thousand rows are read.

    Where the stage is RL, the file must have the columns that the reward `reward_name` is called with, and a
    reward of the user's own is called on the first row, with completions as they come from `model_name`.
    """
    report = _report(text)
    method = METHODS[stage]
    if report.format not in method.data_formats:
        raise ValueError(
            f"{text} reads as {report.format} (columns {', '.join(report.columns)}), and {stage.upper()} "
            f"trains on {' or '.join(method.data_formats)}"
        )
    if method.is_rl and reward_name:
        _check_columns(report, reward_name)
        if ".py:" in reward_name:
            _try_reward(report, reward_name, model_name)
    return report


def eval_file(text: str, trained_on: dict[str, str], reward_name: str | None) -> DataReport:
    """A report on a file of held-out prompts; `trained_on` are the data files by their kind."""
    path = existing_file(text)
    for kind, other in trained_on.items():
        if Path(other).expanduser().exists() and path.samefile(Path(other).expanduser()):
            raise ValueError(f"{text} is the file of the {kind}: what is measured must not be trained on")
    report = _report(text)
    if reward_name:
        _check_columns(report, reward_name)
    return report


def unknown_columns(text: str) -> dict[str, object]:
    """The first row of a file whose columns have no known names; else, or where none can be read, empty."""
    from pipelines.datasets import DataError, read_records
    from pipelines.datasets.forms import find_form

    try:
        first = next(iter(read_records(existing_file(text))), {})
    except DataError:
        return {}  # the check of the file says why
    return first if first and find_form(first) is None else {}


def columns_needed(kind: str, reward_name: str | None) -> list[str]:
    """TRL's names of the columns of a kind of data, those that a user may have under other names."""
    from pipelines.datasets.forms import GOLDS
    from pipelines.rewards import load_reward, required_columns

    if kind == "demonstrations":
        return ["prompt", "completion"]
    if kind == "preferences":
        return ["prompt", "chosen", "rejected"]
    golds = required_columns(load_reward(reward_name, Path())) if reward_name else []
    return ["prompt", *(column for column in golds if column in GOLDS)]


def write_renamed(text: str, mapping: dict[str, str]) -> str:
    """Write a file's rows under TRL's column names (`mapping`: TRL's to the file's); the new file's name."""
    from pipelines.datasets import inspect_source, raise_for_error, read_normalised

    source = existing_file(text)
    report = inspect_source(source, mapping=mapping)
    raise_for_error(report)
    out, number = Path(f"{source.stem}.renamed.jsonl"), 1
    while out.exists():
        number += 1
        out = Path(f"{source.stem}.renamed-{number}.jsonl")
    rows = (json.dumps(row, ensure_ascii=False) + "\n" for row in read_normalised(source, report))
    with out.open("w", encoding="utf-8") as file:
        file.writelines(rows)
    return str(out)


def _report(text: str) -> DataReport:
    """How the first rows of a file read; BadInput with line and column where they do not."""
    from pipelines.datasets import inspect_source, raise_for_error

    report = inspect_source(existing_file(text), sample=ROWS_READ)
    raise_for_error(report)
    return report


def _check_columns(report: DataReport, reward_name: str) -> None:
    """ValueError where the rows lack what the reward is called with."""
    from pipelines.rewards import load_reward, required_columns

    columns = {*report.columns, *report.mapping}
    missing = [c for c in required_columns(load_reward(reward_name, Path())) if c not in columns]
    if missing:
        raise ValueError(
            f"{report.file} has no column {' and no column '.join(missing)}, needed for {reward_name}; "
            f"it has {', '.join(sorted(columns))}"
        )


def _try_reward(report: DataReport, reward_name: str, model_name: str | None) -> None:
    """Call the user's reward on the first row, with its gold as the completion; ValueError where it fails."""
    from pipelines.prepare import as_chat, has_chat_template
    from pipelines.rewards import load_reward
    from pipelines.rewards.loading import where

    row = dict(report.sample or {})
    chat = bool(report.conversational) or (model_name is not None and has_chat_template(model_name))
    row["completion"] = str(row.get(report.gold or "answer", "an answer"))
    row = as_chat(row) if chat else row
    form = "a list of messages" if chat else "a string"
    columns = {
        f"{name}s" if name in ("prompt", "completion") else name: [value] for name, value in row.items()
    }
    try:
        scores = load_reward(reward_name, Path())(**columns)
    except Exception as error:
        place = where(error, Path(reward_name.rpartition(":")[0]))
        raise ValueError(
            f"{reward_name} raised {type(error).__name__} at {place}: "
            f"{error}. It was called on the first row; with this model a completion is {form}"
        ) from None
    good = isinstance(scores, (list, tuple)) and len(scores) == 1
    if not good or not (scores[0] is None or isinstance(scores[0], (int, float))):
        raise ValueError(
            f"{reward_name} returned {scores!r} for one completion; a list of one number is needed"
        )


def reward(text: str) -> str:
    """A built-in reward's name, or a function in a file that loads and has the right signature."""
    from pipelines.rewards import load_reward

    if not text:
        raise ValueError("a reward is needed for RL: a built-in name, or file.py:function")
    load_reward(text, Path())
    return text


def amount(text: str, most: float) -> float:
    """A positive number, at most `most`; a thousands comma and a leading dollar sign are understood."""
    plain = text.removeprefix("$").replace(",", "").replace("_", "")
    try:
        value = float(plain)
    except ValueError:
        raise ValueError(f'"{text}" is not a number') from None
    if not value > 0:
        raise ValueError(f"{text} is not above 0")
    if not value <= most:
        raise ValueError(f"{text} is out of range; at most {most:,.0f}")
    return int(value) if value == int(value) else value


def run_folder(text: str) -> Path:
    """A folder for the run that holds nothing yet."""
    path = Path(text).expanduser()
    if path.is_file():
        raise ValueError(f"{text} is a file; a folder is needed")
    if (path / "plan.yaml").exists():
        raise ValueError(
            f"{text} holds a run already (`advisor run {text}` goes on with it); name another folder"
        )
    if path.is_dir() and any(path.iterdir()):
        raise ValueError(f"{text} is not empty; name another folder")
    return path


def open_runs() -> list[Path]:
    """Run folders here that are planned and not finished, the newest first."""
    from pipelines.runs import read_run

    plans = sorted(Path().glob("*/plan.yaml"), key=lambda plan: plan.stat().st_mtime, reverse=True)
    runs = [(plan.parent, read_run(plan.parent)) for plan in plans]
    return [folder for folder, record in runs if record is None or record.status != "finished"]


def free_run_folder() -> str:
    """run, or the first of run-2, run-3, ... that is free."""
    name, number = "run", 1
    while Path(name).exists():
        number += 1
        name = f"run-{number}"
    return name
