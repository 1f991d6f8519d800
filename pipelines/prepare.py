"""The data of a run: read once, checked, split by content, written to the run folder in TRL's columns."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from estimators.errors import BadInput
from estimators.record import Record, read_record, write_json
from pipelines.datasets import (
    DataReport,
    inspect_source,
    prompt_key,
    raise_for_error,
    read_normalised,
    split_records,
)
from pipelines.datasets.content import digest_of
from pipelines.methods import METHODS
from pipelines.plain import as_plain
from pipelines.token_counts import Lengths, model_folders, tokens_per_char

Row = dict[str, Any]
MAX_EVAL_ROWS = 200
MAX_EVAL_PROMPTS = 500
EVAL_SHARE = 0.05
END_TOKENS = 1
REPORTS = "reports.json"
NEEDS = {
    "demonstrations": "worked answers (messages, or prompt and completion)",
    "preferences": "pairs (prompt, chosen, rejected)",
    "prompts": "prompts with what the reward reads (prompt and answer, tests, schema or tool_calls)",
}


class SourceRecord(Record):
    """What was found in a source when the run was planned."""

    report: DataReport
    digest: str
    """SHA-256 of its rows in TRL's columns."""


class SourceRecords(Record):
    """data/reports.json: kind of data -> what was found."""

    sources: dict[str, SourceRecord]


class PreparedFile(Record):
    """One kind of data, split."""

    train: str
    eval: str | None
    rows: int
    eval_rows: int
    conversational: bool
    max_tokens: int
    """The longest training row, prompt and completion together."""
    lengths: Lengths
    """Of the training rows."""
    completion_lengths: Lengths
    max_prompt_tokens: int
    gold: str | None = None


class PreparedData(Record):
    """All data of a run, in files below the run folder."""

    files: dict[str, PreparedFile]
    eval_prompts: str | None = None
    """Held-out prompts for the task's reward."""
    num_eval_prompts: int = 0
    notes: tuple[str, ...] = ()


def prepare_data(
    run_dir: Path,
    model: str,
    sources: dict[str, str],
    eval_source: str | None,
    wants_prompts: bool,
    seed: int,
) -> PreparedData:
    """Read every source, hold rows out for evaluation, and write run_dir/data/*.jsonl.

    Args:
        model: the base model; where it has a chat template, plain prompts become turns of a user, and
            where it has none, messages become plain text.
        sources: kind of data -> where it is.
        eval_source: held-out prompts; None splits them off the training prompts.
        wants_prompts: whether the task has a reward to evaluate held-out prompts with.

    Rows of any kind whose prompt is held out are left out of training, and counted in a note.
    """
    chat = has_chat_template(model)
    reports = {kind: _inspect(kind, source) for kind, source in sources.items()}
    rows = {kind: list(_rows(sources[kind], report, chat)) for kind, report in reports.items()}
    notes: list[str] = []
    for kind, report in reports.items():
        name = Path(report.file).name
        notes += [f"{name}: {note}" for note in report.normalise]
        if report.conversational and not chat:
            notes.append(f"{name}: messages become plain text, since the model has no chat template")
        if report.warnings:
            first = report.warnings[0]
            notes.append(f"{name}: {len(report.warnings)} warnings on {kind}; the first: {first.reason}")
    held_out: list[Row] = []
    if eval_source is not None:
        report = inspect_source(eval_source)
        raise_for_error(report)
        held_out = list(_rows(eval_source, report, chat))[:MAX_EVAL_PROMPTS]
    elif wants_prompts and "prompts" in rows:
        share = min(EVAL_SHARE, MAX_EVAL_PROMPTS / max(len(rows["prompts"]), 1))
        rows["prompts"], held_out = split_records(rows["prompts"], share, seed)
    if wants_prompts and not held_out:
        notes.append("no prompts could be held out, so nothing is evaluated with the reward; name data.eval")
    keys = {prompt_key(row) for row in held_out}
    files: dict[str, PreparedFile] = {}
    for kind, report in reports.items():
        kept = [row for row in rows[kind] if prompt_key(row) not in keys] if keys else rows[kind]
        if len(kept) < len(rows[kind]):
            notes.append(
                f"{len(rows[kind]) - len(kept)} rows of {kind} ask a held-out prompt and were left out"
            )
        if not kept:
            raise BadInput(
                f"{sources[kind]}: every prompt is also held out for evaluation; nothing is left to train on"
            )
        files[kind] = _write_kind(run_dir, kind, kept, report, model, seed)
    if held_out:
        _write(run_dir / "data" / "eval.jsonl", held_out)
    sources_read = {
        kind: SourceRecord(report=report, digest=digest_of(rows[kind])) for kind, report in reports.items()
    }
    write_json(run_dir / "data" / REPORTS, SourceRecords(sources=sources_read))
    return PreparedData(
        files=files,
        eval_prompts="data/eval.jsonl" if held_out else None,
        num_eval_prompts=len(held_out),
        notes=tuple(notes),
    )


def _inspect(kind: str, source: str) -> DataReport:
    """The report of a source; BadInput where no method could train on it as this kind of data."""
    report = inspect_source(source)
    raise_for_error(report)
    wanted = {f for m in METHODS.values() if m.data == kind for f in m.data_formats}
    if report.format not in wanted:
        raise BadInput(
            f"{source} holds {report.format} rows ({', '.join(report.columns)}), "
            f"but data.{kind} needs {NEEDS[kind]}"
        )
    return report


def _rows(source: str, report: DataReport, chat: bool) -> Iterator[Row]:
    """Normalised rows, in turns where the model has a chat template and plain where it has none."""
    for row in read_normalised(source, report):
        if report.conversational:
            yield row if chat else as_plain(row)
        else:
            yield as_chat(row) if chat else row


def as_chat(row: Row) -> Row:
    """A plain row as messages: the prompt a user's turn, what follows the assistant's."""
    changed = dict(row)
    for name, role in (
        ("prompt", "user"),
        ("completion", "assistant"),
        ("chosen", "assistant"),
        ("rejected", "assistant"),
    ):
        if isinstance(row.get(name), str) and isinstance(row.get("prompt"), str):
            changed[name] = [{"role": role, "content": row[name]}]
    return changed


def _write_kind(
    run_dir: Path, kind: str, rows: list[Row], report: DataReport, model: str, seed: int
) -> PreparedFile:
    """One kind as data/KIND.jsonl, with a part held out for its own loss where it is not prompts."""
    evaluation: list[Row] = []
    if kind != "prompts" and len(rows) >= 20:
        rows, evaluation = split_records(rows, min(EVAL_SHARE, MAX_EVAL_ROWS / len(rows)), seed)
    _write(run_dir / "data" / f"{kind}.jsonl", rows)
    if evaluation:
        _write(run_dir / "data" / f"{kind}.eval.jsonl", evaluation)
    ratio = tokens_per_char(model, (text for row in rows for text in _texts(row)))
    totals, prompts = [_chars(row) for row in rows], [_length(row.get("prompt")) for row in rows]
    return PreparedFile(
        train=f"data/{kind}.jsonl",
        eval=f"data/{kind}.eval.jsonl" if evaluation else None,
        rows=len(rows),
        eval_rows=len(evaluation),
        conversational=bool(report.conversational),
        max_tokens=math.ceil(max(totals) * ratio) + END_TOKENS,
        lengths=Lengths.of([total * ratio + END_TOKENS for total in totals]),
        completion_lengths=Lengths.of(
            [(total - prompt) * ratio + END_TOKENS for total, prompt in zip(totals, prompts, strict=True)]
        ),
        max_prompt_tokens=math.ceil(max(prompts) * ratio),
        gold=report.gold,
    )


def read_sources(run_dir: Path) -> dict[str, SourceRecord]:
    """What was found in the run's sources; empty where it was not recorded."""
    path = run_dir / "data" / REPORTS
    return dict(read_record(SourceRecords, path).sources) if path.exists() else {}


def _texts(row: Row) -> Iterator[str]:
    """The texts of a row."""
    for value in row.values():
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            yield from (str(m.get("content") or "") for m in value if isinstance(m, dict))


def _chars(row: Row) -> int:
    """Characters of a row's longest sequence."""
    answers = [_length(row.get(name)) for name in ("completion", "chosen", "rejected", "text", "messages")]
    return _length(row.get("prompt")) + max(answers)


def _length(value: Any) -> int:
    """Characters of a text or of messages; each turn costs a few more for the template."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list):
        return sum(len(str(m.get("content") or "")) + 24 for m in value if isinstance(m, dict))
    return 0


def _write(path: Path, rows: list[Row]) -> None:
    """Rows as JSONL."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def has_chat_template(model: str) -> bool:
    """Whether a model has a chat template: from its files or the local cache, else from its name."""
    for folder in model_folders(model):
        if (folder / "tokenizer_config.json").exists():
            if any((folder / name).exists() for name in ("chat_template.jinja", "chat_template.json")):
                return True
            return "chat_template" in (folder / "tokenizer_config.json").read_text(
                encoding="utf-8", errors="replace"
            )
    return re.search(r"instruct|chat|-it\b|-sft|zephyr|tulu", model, re.IGNORECASE) is not None
