"""Frozen, strict records, and how they are read from and written to files.

Every file that crosses between two verbs is one Record. An unknown key is an error that names the key,
its place and the nearest known one.
"""

from __future__ import annotations

import contextlib
import difflib
import inspect
import json
import os
import typing
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from estimators.errors import BadInput


class Record(BaseModel):
    """A frozen pydantic model that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), allow_inf_nan=False)

    @classmethod
    def other_name(cls, key: str) -> str | None:
        """A clause on an unknown `key` that other tools have: what it is called here. None: no idea."""
        return None


R = TypeVar("R", bound=Record)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name closest to `name`, or None where nothing is close."""
    by_lower = {k.lower(): k for k in known}
    found = difflib.get_close_matches(name.lower(), list(by_lower), n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def unknown(kind: str, name: object, known: Iterable[str]) -> BadInput:
    """The error for a name that is not known: the nearest one, then the whole list."""
    names = sorted(known)
    guess = nearest(str(name), names)
    hint = f'; did you mean "{guess}"?' if guess else ""
    return BadInput(f'unknown {kind} "{name}"{hint} Known: {", ".join(names)}')


def validate(record: type[R], data: Any, source: str) -> R:
    """`data` as a `record`; raises BadInput that names `source`, the key and the remedy."""
    if not isinstance(data, dict):
        raise BadInput(f"{source}: expected keys and values, found {type(data).__name__}")
    try:
        return record.model_validate(data)
    except ValidationError as error:
        raise BadInput(f"{source}: {explain(record, error)}") from None


def explain(record: type[Record], error: ValidationError) -> str:
    """One sentence per problem of a pydantic error, at most four."""
    sentences = []
    problems = error.errors()
    for problem in problems[:4]:
        place = ".".join(str(part) for part in problem["loc"]) or "the file"
        if problem["type"] == "extra_forbidden":
            key = str(problem["loc"][-1])
            clause = record.other_name(key) if len(problem["loc"]) == 1 else None
            if clause:
                sentences.append(f'unknown key "{place}"; {clause}')
                continue
            known = _known_keys(record, problem["loc"][:-1])
            guess = nearest(key, known)
            hint = f'; did you mean "{guess}"?' if guess else ""
            sentences.append(f'unknown key "{place}"{hint} Known keys: {", ".join(known)}')
        elif problem["type"] == "missing":
            sentences.append(f'"{place}" is missing')
        else:
            shown = json.dumps(problem["input"], default=str)[:80]
            message = problem["msg"].removeprefix("Value error, ")
            if message[1:2].islower():  # a sentence, not a name such as PPO
                message = message[:1].lower() + message[1:]
            sentences.append(f'"{place}" is {shown}: {message}')
    if len(problems) > 4:
        sentences.append(f"and {len(problems) - 4} more")
    return "; ".join(sentences)


def _known_keys(record: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """The field names at `path` inside `record`."""
    current: type[BaseModel] = record
    for part in path:
        field = current.model_fields.get(str(part)) if isinstance(part, str) else None
        inner = _record_in(field.annotation) if field else None
        if inner is not None:
            current = inner
    return list(current.model_fields)


def _record_in(annotation: Any) -> type[BaseModel] | None:
    """The first pydantic model inside a type annotation."""
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return annotation
    for argument in typing.get_args(annotation):
        found = _record_in(argument)
        if found is not None:
            return found
    return None


def read_text(path: Path) -> str:
    """The text of `path`; BadInput where there is none."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        siblings = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        guess = nearest(path.name, siblings)
        hint = f'; did you mean "{path.parent / guess}"?' if guess else ""
        raise BadInput(f"{path}: no such file{hint}") from None
    except IsADirectoryError:
        raise BadInput(f"{path} is a folder; a file is needed") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from None


def read_yaml(path: Path) -> Any:
    """The content of a YAML (or JSON) file; BadInput with line and column where it is none."""
    import yaml

    try:
        return yaml.load(read_text(path), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        what = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise BadInput(f"{path}{where}: not valid YAML: {what}") from None
    except ValueError as error:  # a date that is none, such as 2024-13-45
        raise BadInput(f"{path}: not valid YAML: {error}") from None


def read_record(record: type[R], path: Path) -> R:
    """The record in a YAML or JSON file."""
    return validate(record, read_yaml(path), str(path))


def write_atomic(path: Path, text: str) -> None:
    """Write `text` so that a reader, or a crash, sees the old file or the new one, never half of one."""
    if path.is_dir():
        raise BadInput(f"{path} is a folder; a file is needed")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise BadInput(f"{path}: cannot be written ({error.strerror})") from None


def write_json(path: Path, record: Record) -> None:
    """`record` as indented JSON."""
    write_atomic(path, json.dumps(record.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n")
