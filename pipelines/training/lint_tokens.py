"""What a model's tokenizer and chat template make of training rows; no weights are loaded.

`python -m pipelines.training.lint_tokens` reads a JSON list of requests on stdin
(`token_lint.LintRequest`) and prints a list of answers: {"tokens": TokenLint, "findings": [Finding]} or
{"error", "remedy"}. Rows are rendered and masked as TRL's SFTTrainer does it
(trl/trainer/sft_trainer.py, `tokenize_fn`): the prompt with a generation prompt, the row as a whole, the
labels where they diverge.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipelines.datasets.forms import FORMS, Match
from pipelines.datasets.lengths import lengths_of, propose_max_length
from pipelines.datasets.messages import RowProblem
from pipelines.datasets.normalise import Row, normalise_row
from pipelines.datasets.report import DataReport, Finding, TokenLint
from pipelines.datasets.sources import read_batches

BATCH_ROWS = 256
LISTED = 20
# a question and an answer that no template will mistake for its own words
QUESTION, ANSWER = "QUESTION-7f3a", "ANSWER-7f3a"


def load_tokenizer(model: str) -> Any:
    """The tokenizer of a folder, a GGUF file or a hub id; OSError or ValueError where there is none."""
    from transformers import AutoTokenizer

    path = Path(model)
    if path.suffix == ".gguf":
        return AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    return AutoTokenizer.from_pretrained(model)


class TokenLinter:
    """Counts tokens row by row, and remembers what is odd."""

    def __init__(
        self, tokenizer: Any, report: DataReport, max_length: int | None, assistant_only: bool
    ) -> None:
        self.tokenizer = tokenizer
        self.report = report
        self.max_length = max_length
        self.assistant_only = assistant_only
        self.lengths: dict[str, Counter[int]] = {}
        self.rows = 0
        self.truncated = 0
        self.places: dict[str, list[int]] = {}
        self.counts: Counter[str] = Counter()
        self.template_errors: Counter[str] = Counter()
        self.roles: Counter[str] = Counter()
        """Rows that have at least one message of a role."""
        self.template = _training_template(tokenizer) if assistant_only and report.conversational else None
        """What TRL trains this model with, where its own template has no generation marks."""
        self.marked = has_marks(self.template or tokenizer.chat_template)
        self.special = sorted({token for token in tokenizer.all_special_tokens if len(token) > 2}, key=len)

    # rows

    def add(self, places: list[int], rows: list[Row]) -> None:
        """Count the tokens of some normalised rows."""
        if self.report.conversational:
            for place, row in zip(places, rows, strict=True):
                self._conversation(place, row)
        else:
            self._texts(places, rows)

    def _texts(self, places: list[int], rows: list[Row]) -> None:
        eos = self.tokenizer.eos_token or ""
        if self.report.format in ("text", "prompt_only"):
            part = "text" if self.report.format == "text" else "prompt"
            ends = eos if part == "text" else ""
            encoded = self._encode([_ended(row[part], ends) for row in rows])
            for place, row, ids in zip(places, rows, encoded, strict=True):
                self._count(place, {"total": len(ids)})
                self._special_in(place, row[part].removesuffix(eos) if eos else row[part])
            return
        prompts = self._encode([row["prompt"] for row in rows])
        answers = ("chosen", "rejected") if self.report.format == "preference" else ("completion",)
        wholes = [
            self._encode([row["prompt"] + _ended(row[answer], eos) for row in rows]) for answer in answers
        ]
        for index, (place, row) in enumerate(zip(places, rows, strict=True)):
            for answer in answers:
                self._special_in(place, row[answer].removesuffix(eos) if eos else row[answer])
            self._pair(place, prompts[index], [whole[index] for whole in wholes], answers)

    def _pair(self, place: int, prompt: list[int], wholes: list[list[int]], answers: tuple[str, ...]) -> None:
        """One row with a prompt and one or two answers."""
        sizes = {"prompt": len(prompt)}
        starts = []
        for answer, whole in zip(answers, wholes, strict=True):
            shared = _shared(prompt, whole)
            starts.append(shared)
            sizes[answer] = len(whole) - shared
            if shared < len(prompt):
                self._note("boundary", place)
        self._count(place, {"total": max(map(len, wholes)), **sizes})
        if self.max_length is not None and max(starts) >= self.max_length:
            self._note("masked_out", place)

    def _conversation(self, place: int, row: Row) -> None:
        try:
            self._rendered(place, row)
        except Exception as error:  # a template raises what it likes; the message is what the user needs
            self.template_errors[_first_line(error)] += 1
            self._note("template_error", place)

    def _rendered(self, place: int, row: Row) -> None:
        tools = row.get("tools") or None
        options: dict[str, Any] = {"tools": tools, **(row.get("chat_template_kwargs") or {})}
        for message in row.get("messages") or row["prompt"]:
            self._special_in(place, str(message.get("content") or ""))
        if self.report.format == "messages":
            masked = self.assistant_only and self.marked
            if masked and self.template is not None:
                options["chat_template"] = self.template
            encoded = self._render(row["messages"], mask=masked, **options)
            ids = encoded["input_ids"]
            self._count(place, {"total": len(ids)})
            if masked:
                mask = encoded.get("assistant_masks") or []
                cut = mask if self.max_length is None else mask[: self.max_length]
                if 1 not in cut:
                    self._note("masked_out", place)
            return
        prompt = self._render(row["prompt"], add_generation_prompt=True, **options)["input_ids"]
        if self.report.format == "prompt_only":
            self._count(place, {"total": len(prompt)})
            return
        answers = ("chosen", "rejected") if self.report.format == "preference" else ("completion",)
        wholes = [self._render(row["prompt"] + row[answer], **options)["input_ids"] for answer in answers]
        self._pair(place, prompt, wholes, answers)

    def _render(self, messages: list[Row], *, mask: bool = False, **options: Any) -> dict[str, Any]:
        encoded = self.tokenizer.apply_chat_template(
            messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=mask, **options
        )
        return {"input_ids": list(encoded["input_ids"]), "assistant_masks": encoded.get("assistant_masks")}

    def _encode(self, texts: list[str]) -> list[list[int]]:
        encoded: list[list[int]] = self.tokenizer(texts)["input_ids"]
        return encoded

    def _count(self, place: int, sizes: dict[str, int]) -> None:
        self.rows += 1
        for part, size in sizes.items():
            self.lengths.setdefault(part, Counter())[size] += 1
        if self.max_length is not None and sizes["total"] > self.max_length:
            self._note("truncated", place)

    def _special_in(self, place: int, text: str) -> None:
        if "<" not in text and "[" not in text:
            return
        if any(token in text for token in self.special):
            self._note("special_in_text", place)

    def _note(self, kind: str, place: int) -> None:
        self.counts[kind] += 1
        places = self.places.setdefault(kind, [])
        if len(places) < LISTED and (not places or places[-1] != place):
            places.append(place)

    # results

    def tokens(self, model: str) -> TokenLint:
        """The counts as a record."""
        total = self.lengths.get("total", Counter())
        lengths = {part: lengths_of(counts, "tokens") for part, counts in self.lengths.items()}
        limited = self.max_length is not None
        masks = limited or (self.assistant_only and self.marked and self.report.format == "messages")
        return TokenLint(
            model=model,
            rows=self.rows,
            max_length=self.max_length,
            proposed_max_length=propose_max_length(sorted(total.items()), total.total()) if total else None,
            lengths={part: found for part, found in lengths.items() if found is not None},
            truncated_share=self._share("truncated") if limited else None,
            masked_out_share=self._share("masked_out") if masks else None,
            masked_out_places=self.places.get("masked_out", []),
        )

    def _share(self, kind: str) -> float:
        return self.counts[kind] / self.rows if self.rows else 0.0

    def findings(self) -> list[Finding]:
        """What is odd about the rows and about the tokenizer."""
        found = [*self._row_findings(), *self._tokenizer_findings()]
        if self.report.conversational:
            found += self._template_findings()
        return found

    def _finding(self, kind: str, says: str, remedy: str) -> list[Finding]:
        count = self.counts[kind]
        if not count:
            return []
        share = count / max(self.rows, count)
        places = self.places.get(kind, [])
        says = says.format(count=count, share=f"{share:.1%}")
        return [Finding(code=kind, says=says, remedy=remedy, count=count, share=share, places=places)]

    def _row_findings(self) -> list[Finding]:
        limit = f"max_length {self.max_length}" if self.max_length is not None else "any length"
        raised = "; ".join(f'"{text}" ({count})' for text, count in self.template_errors.most_common(2))
        return [
            *self._finding(
                "masked_out",
                f"in {{count}} rows ({{share}}) no trained token is left at {limit}: their loss is 0 or NaN",
                "raise max_length, shorten their prompts, or leave them out",
            ),
            *self._finding(
                "truncated",
                f"{{count}} rows ({{share}}) are longer than {limit} and lose their end",
                "raise max_length, or split them; a cut answer teaches to stop early or never",
            ),
            *self._finding(
                "template_error",
                f"the chat template refuses {{count}} rows: {raised}",
                "put the messages into the order that the template takes, or set another template",
            ),
            *self._finding(
                "special_in_text",
                "{count} rows hold special tokens of this tokenizer as text",
                "remove them: the template adds them, and in a text they end a turn early",
            ),
            *self._finding(
                "boundary",
                "in {count} rows ({share}) tokens merge across the end of the prompt",
                "start answers with the space and not end prompts with it (or use messages): training then "
                "sees what generation will see",
            ),
        ]

    def _tokenizer_findings(self) -> list[Finding]:
        tokenizer = self.tokenizer
        found = []
        if tokenizer.eos_token is None:
            found.append(
                Finding(
                    code="no_end_token",
                    says="the tokenizer has no end token: no answer is closed, and generation never stops",
                    remedy="set eos_token to the token that ends a turn",
                )
            )
        elif tokenizer.pad_token_id is not None and tokenizer.pad_token_id == tokenizer.eos_token_id:
            found.append(
                Finding(
                    code="pad_is_eos",
                    severity="note",
                    says=f"padding and end are the same token ({tokenizer.eos_token})",
                    remedy="TRL masks padding by place; a collator that masks by token would hide the ends",
                )
            )
        return found

    def _template_findings(self) -> list[Finding]:
        template = self.tokenizer.chat_template
        if template is None:
            return [
                Finding(
                    code="no_chat_template",
                    says="the rows are conversations, and this tokenizer has no chat template",
                    remedy="set one (SFTConfig.chat_template_path), or write prompt and completion as text",
                )
            ]
        found = []
        if self.roles["system"] and not self._renders([{"role": "system", "content": "S"}, *_QUESTION]):
            found.append(
                Finding(
                    code="system_forbidden",
                    says=f"the template takes no system message, and {self.roles['system']} rows have one",
                    remedy="put its text before the first user message",
                    count=self.roles["system"],
                )
            )
        found += self._end_of_turn()
        if self.assistant_only and (self.template is not None or not self.marked):
            known = self.template is not None
            found.append(
                Finding(
                    code="no_generation_tags",
                    severity="note" if known else "warning",
                    says="the chat template does not mark what the assistant says ({% generation %})"
                    + ("; TRL has a training template for this model" if known else ""),
                    remedy=None if known else "set a template with the marks, or train on all tokens",
                )
            )
        return found

    def _renders(self, messages: list[Row]) -> bool:
        try:
            self.tokenizer.apply_chat_template(messages, tokenize=False)
        except Exception:  # whatever a template raises means no
            return False
        return True

    def _end_of_turn(self) -> list[Finding]:
        """Does the template close the assistant's turn with a token that generation can stop at?"""
        try:
            text = self.tokenizer.apply_chat_template(
                [*_QUESTION, {"role": "assistant", "content": ANSWER}], tokenize=False
            )
        except Exception:  # told as template_error already
            return []
        after = str(text).rpartition(ANSWER)[2]
        special = [token for token in self.tokenizer.all_special_tokens if token in after]
        added = [str(token) for token in self.tokenizer.get_added_vocab() if str(token) in after]
        if not special and not added:
            return [
                Finding(
                    code="turn_never_closed",
                    says="the chat template writes no end token after an answer: the model never stops",
                    remedy="close the assistant's turn in the template with eos_token",
                )
            ]
        eos = self.tokenizer.eos_token
        if eos and eos not in after:
            return [
                Finding(
                    code="turn_end_is_not_eos",
                    severity="note",
                    says=f"the template ends a turn with {(special or added)[0]}, and eos_token is {eos}",
                    remedy="let generation end at both (generation_config.eos_token_id), or set eos_token in "
                    "the trainer's config",
                )
            ]
        return []


_QUESTION: list[Row] = [{"role": "user", "content": QUESTION}]


def _ended(text: str, eos: str) -> str:
    """`text` with the end token that TRL adds to plain text."""
    return text if not eos or text.endswith(eos) else text + eos


def _shared(ours: list[int], theirs: list[int]) -> int:
    size = 0
    for one, other in zip(ours, theirs, strict=False):
        if one != other:
            break
        size += 1
    return size


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:160]


def has_marks(template: Any) -> bool:
    """Does a chat template mark what the assistant says?"""
    return re.search(r"\{%-?\s*generation", str(template)) is not None


def _training_template(tokenizer: Any) -> str | None:
    """The template with generation marks that TRL has for this tokenizer, where its own has none."""
    if tokenizer.chat_template is None or has_marks(tokenizer.chat_template):
        return None
    from trl.chat_template_utils import get_training_chat_template

    try:
        found = get_training_chat_template(tokenizer)
    except ValueError:  # a template that TRL does not know
        return None
    return str(found) if found is not None else None


def rows_of(report: DataReport, sample: int | None) -> Iterator[tuple[list[int], list[Row]]]:
    """The normalised rows of a report's source in batches, with their places."""
    form = next(form for form in FORMS if form.name == report.form)
    match = Match(form, dict(report.mapping))
    left = math.inf if sample is None else sample
    for log, batch in read_batches(report.file, []):
        for start in range(0, len(batch.records), BATCH_ROWS):
            places: list[int] = []
            rows: list[Row] = []
            for place, record in zip(
                batch.places[start : start + BATCH_ROWS],
                batch.records[start : start + BATCH_ROWS],
                strict=True,
            ):
                if left <= 0:
                    break
                try:
                    rows.append(
                        normalise_row(record, match, bool(report.conversational), drop_nulls=log.by_row)
                    )
                except RowProblem:
                    continue
                places.append(place)
                left -= 1
            if rows:
                yield places, rows
            if left <= 0:
                return


def lint(
    report: DataReport, model: str, max_length: int | None, assistant_only: bool, sample: int | None
) -> tuple[TokenLint, list[Finding]]:
    """Tokens and findings of a source for a model."""
    linter = TokenLinter(load_tokenizer(model), report, max_length, assistant_only)
    for places, rows in rows_of(report, sample):
        if report.conversational:
            for row in rows:
                linter.roles.update({m["role"] for m in row.get("messages") or row["prompt"]})
            if linter.tokenizer.chat_template is None:
                continue
        linter.add(places, rows)
    return linter.tokens(model), linter.findings()


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The answer to one request."""
    report = DataReport.model_validate(request["report"])
    try:
        tokens, findings = lint(
            report,
            request["model"],
            request.get("max_length"),
            bool(request.get("assistant_only_loss")),
            request.get("sample"),
        )
    except (OSError, ValueError, ImportError, KeyError) as error:
        return {
            "error": f"the tokenizer of {request['model']} cannot be loaded ({_first_line(error)})",
            "remedy": "give a folder with tokenizer files, a GGUF file, or a hub id in the local cache",
        }
    return {
        "tokens": tokens.model_dump(mode="json"),
        "findings": [finding.model_dump(mode="json") for finding in findings],
    }


def main() -> None:
    """Answer the requests on stdin, in their order."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    requests = json.load(sys.stdin)
    out = sys.stdout
    sys.stdout = sys.stderr  # libraries may print; stdout is for the answers
    json.dump([answer(request) for request in requests], out)


if __name__ == "__main__":
    main()
