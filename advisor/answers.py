"""answers.yaml: the six answers and what else the user decides, read strictly and written for people.

YAML 1.1 reads `yes` and `no` as booleans, and people write True, Y or "No": all are accepted. What is written
is plain yes, no and unsure.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BeforeValidator, Discriminator, Field, StringConstraints, Tag, ValidationError

from advisor.aliases import hint
from advisor.questions import SIX, SIX_BY_KEY, TASKS
from estimators.errors import BadInput
from estimators.record import Record, read_text, read_yaml, write_atomic

_WORDS = {"yes": "yes", "y": "yes", "true": "yes", "no": "no", "n": "no", "false": "no", "unsure": "unsure"}


def _as_answer(value: Any) -> str:
    """yes, no or unsure, from what YAML or a person made of it."""
    word = {True: "yes", False: "no"}.get(value) if isinstance(value, bool) else None
    if word is None and isinstance(value, str):
        word = _WORDS.get(value.strip().lower())
    if word is None:
        raise ValueError("write yes, no or unsure")
    return word


def _lower(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


Answer = Annotated[Literal["yes", "no", "unsure"], BeforeValidator(_as_answer)]
Task = Annotated[
    Literal["math", "code", "extraction", "tool-calling", "dialogue", "safety", "instruction"],
    BeforeValidator(lambda value: _lower(value).replace("_", "-") if isinstance(value, str) else value),
]
Tuning = Annotated[Literal["auto", "full", "lora", "qlora"], BeforeValidator(_lower)]
Text = Annotated[str, StringConstraints(min_length=1, pattern=r"\S")]
Hours = Annotated[float, Field(strict=True, gt=0, le=10_000_000)]


class DataFiles(Record):
    """Paths of the data files, relative to the folder in which the command is called."""

    demonstrations: Text | None = None
    """Worked answers, for SFT."""
    preferences: Text | None = None
    """Pairs with a chosen and a rejected answer, for DPO."""
    prompts: Text | None = None
    """Prompts with what the reward needs, such as `answer`, for RL."""
    eval: Text | None = None
    """Prompts that no stage trains on."""


class Budget(Record):
    """What may be spent in all; None is no limit."""

    gpu_hours: Hours | None = None
    usd: Annotated[float, Field(strict=True, gt=0, le=1_000_000_000)] | None = None
    wall_hours: Hours | None = None


def _number_as_text(value: Any) -> Any:
    """YAML reads `gpu: 4090` as a number."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


class HardwareAsked(Record):
    """Hardware to plan for where it is not the machine at hand."""

    gpu: Annotated[Text, BeforeValidator(_number_as_text)]
    """A GPU's name, such as H100."""
    count: Annotated[int, Field(strict=True, ge=1, le=1024)] = 1
    """GPUs on each node."""
    nodes: Annotated[int, Field(strict=True, ge=1, le=4096)] = 1


def _hardware_tag(value: Any) -> str:
    return "listed" if isinstance(value, (dict, HardwareAsked)) else "auto"


Hardware = Annotated[
    Annotated[Literal["auto"], BeforeValidator(_lower), Tag("auto")]
    | Annotated[HardwareAsked, Tag("listed")],
    Discriminator(_hardware_tag),
]


class Answers(Record):
    """What the user says: six answers that choose the pipeline, and the options that fill it."""

    verifiable: Answer
    preference_pairs: Answer
    long_cot: Answer
    limited_compute: Answer
    base_capable: Answer
    large_scale: Answer

    task: Task | None = None
    model: Text | None = None
    data: DataFiles = DataFiles()
    reward: Text | None = None
    """A built-in reward's name, or `file.py:function`."""
    budget: Budget = Budget()
    hardware: Hardware = "auto"
    tuning: Tuning = "auto"
    seed: Annotated[int, Field(strict=True, ge=0, lt=2**32)] = 0


def read_answers(path: Path) -> Answers:
    """The answers in `path`; BadInput names place, key and remedy of every problem (at most four)."""
    data = _read_mapping(path)
    try:
        return Answers.model_validate(data)
    except ValidationError as error:
        raise _bad_input(path, error) from None


def read_draft(path: Path) -> dict[str, Any]:
    """The keys that `path` holds so far, checked as answers are; what is not answered yet may be missing.

    Returns plain values, as `Answers.model_dump` gives them; an empty file is an empty draft.
    """
    if read_yaml(path) is None:
        return {}
    data = _read_mapping(path)
    unanswered = {question.key: "unsure" for question in SIX if question.key not in data}
    try:
        answers = Answers.model_validate({**unanswered, **data})
    except ValidationError as error:
        raise _bad_input(path, error) from None
    return {key: value for key, value in answers.model_dump(exclude_unset=True).items() if key in data}


def write_answers(answers: Answers, path: Path) -> None:
    """Write `answers` as YAML with plain yes and no and one comment per question; reads back the same."""
    write_draft(answers.model_dump(), path)


def write_draft(values: dict[str, Any], path: Path) -> None:
    """Write the keys answered so far; a question without an answer is a comment that says so."""
    write_atomic(path, render(values))


def render(values: dict[str, Any]) -> str:
    """`values` (keys of Answers, plain values) as YAML for people."""
    lines = ["# Answers for `advisor`: yes, no or unsure.", ""]
    for question in SIX:
        lines.append(f"# {question.asks}")
        answer = values.get(question.key)
        lines.append(f"{question.key}: {answer}" if answer else f"# {question.key}: (not answered yet)")
    rest = {key: _bare(value) for key, value in values.items() if key not in SIX_BY_KEY}
    rest = {key: value for key, value in rest.items() if value not in (None, {})}
    if rest:
        lines += ["", yaml.safe_dump(rest, sort_keys=False, allow_unicode=True, width=1000).rstrip()]
    return "\n".join(lines) + "\n"


def _bare(value: Any) -> Any:
    """A block without its empty keys."""
    return {k: v for k, v in value.items() if v is not None} if isinstance(value, dict) else value


def _read_mapping(path: Path) -> dict[str, Any]:
    """The top-level keys and values of a YAML file; BadInput where it holds anything else, or a key twice."""
    data = read_yaml(path)
    if data is None:
        raise BadInput(f"{path} is empty; `advisor ask -o {path}` asks the questions and fills it")
    if not isinstance(data, dict):
        raise BadInput(f'{path}:1: expected lines such as "verifiable: yes", found {type(data).__name__}')
    seen: dict[tuple[str, ...], int] = {}
    for keys, line, column in _places(_compose(path)):
        if keys in seen:
            raise BadInput(
                f'{path}:{line}:{column}: "{".".join(keys)}" stands here and in line {seen[keys]}; keep one'
            )
        seen[keys] = line
    # an optional key with nothing after it is a key left out; an empty answer to one of the six is not
    return {str(key): value for key, value in data.items() if value is not None or key in SIX_BY_KEY}


def _compose(path: Path) -> Any:
    return yaml.compose(read_text(path), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _places(node: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], int, int]]:
    """(key path, line, column) of the keys in a YAML document, two blocks deep, as deep as answers go."""
    if not isinstance(node, yaml.MappingNode) or len(above) > 1:
        return
    for key, value in node.value:
        keys = (*above, str(key.value))
        yield keys, key.start_mark.line + 1, key.start_mark.column + 1
        yield from _places(value, keys)


def _bad_input(path: Path, error: ValidationError) -> BadInput:
    """What is wrong in `path`, one line per problem, with its place and its remedy."""
    places = {keys: (line, column) for keys, line, column in _places(_compose(path))}
    problems = error.errors(include_url=False)
    missing = [str(p["loc"][-1]) for p in problems if p["type"] == "missing" and len(p["loc"]) == 1]
    found = []
    for problem in problems:
        keys = tuple(str(part) for part in problem["loc"] if part not in ("auto", "listed"))
        if keys and keys[-1] in missing and len(keys) == 1:
            continue
        place = next((places[keys[:n]] for n in range(len(keys), 0, -1) if keys[:n] in places), None)
        where = f"{path}:{place[0]}:{place[1]}" if place else str(path)
        found.append((place or (0, 0), f"{where}: {_say(keys, problem)}"))
    lines = [line for _, line in sorted(found)]
    if missing:
        names = ", ".join(f'"{key}"' for key in missing)
        lines.append(
            f"{path}: {names} {'is' if len(missing) == 1 else 'are'} missing; write yes, no or unsure "
            f"(`advisor ask -o {path}` asks for what is missing)"
        )
    if len(lines) > 4:
        lines[4:] = [f"and {len(lines) - 4} more"]
    return BadInput("\n".join(lines))


def _say(keys: tuple[str, ...], problem: Any) -> str:
    """One problem in one sentence."""
    name = ".".join(keys)
    if problem["type"] == "extra_forbidden":
        known = _KNOWN[keys[0] if len(keys) > 1 else ""]
        remedy = hint(keys[-1], known) or f"known: {', '.join(known)}"
        return f'unknown key "{name}"; {remedy}'
    if problem["type"] == "missing":
        return f'"{name}" is missing'
    shown = repr(problem["input"])[:60] if not isinstance(problem["input"], (dict, list)) else "a block"
    if keys[0] in SIX_BY_KEY and problem["input"] is None:
        return f'"{name}" is empty; write yes, no or unsure'
    if keys == ("task",):
        return f'"task" is {shown}; known: {", ".join(TASKS)}'
    if keys == ("hardware",):
        return f'"hardware" is {shown}; write auto, or gpu, count and nodes'
    if problem["type"] == "model_type":
        return f'"{name}" is {shown}; expected indented keys, such as "  {_KNOWN[name][-1]}: ..."'
    if problem["type"] == "string_pattern_mismatch" or problem["type"] == "string_too_short":
        return f'"{name}" is empty; give it a value or leave the line out'
    message = problem["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return (
        f'"{name}" is {shown}; it {message}'
        if message.startswith("should")
        else f'"{name}" is {shown}; {message}'
    )


_KNOWN: dict[str, list[str]] = {
    "": list(Answers.model_fields),
    "data": list(DataFiles.model_fields),
    "budget": list(Budget.model_fields),
    "hardware": list(HardwareAsked.model_fields),
}
