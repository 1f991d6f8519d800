"""The reward for structured output: JSON that fits a JSON Schema or a pydantic model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pipelines.rewards.jsontext import NotJson, json_in
from pipelines.rewards.text import completion_text, per_completion, warn_once

CHECK_LIMIT_S = 2.0


def score_json(
    completions: Sequence[Any], schema: Sequence[Any], partial: bool = False
) -> list[float | None]:
    """One reward per completion, as described in `pipelines.rewards.json_schema_reward`."""
    from pipelines.rewards.workers import POOL

    if isinstance(schema, type):
        schema = [schema] * len(completions)
    rewards: list[float | None] = [0.0] * len(completions)
    jobs, places = [], []
    for place, (completion, wanted) in enumerate(
        zip(completions, per_completion(schema, len(completions), "schema"), strict=True)
    ):
        schema_dict = _schema_dict(wanted)
        if schema_dict is None:
            warn_once(
                f"schema:{wanted!r:.200}", f"json_schema_reward: {wanted!r:.80} is no schema; not scored"
            )
            rewards[place] = None
            continue
        try:
            value = json_in(completion_text(completion))
        except NotJson:
            value, found = None, False
        else:
            found = True
        model = wanted if isinstance(wanted, type) else None
        if model is not None and not partial:
            rewards[place] = _fits_model(model, value) if found else 0.0
            continue
        jobs.append(
            {"kind": "json_schema", "schema": schema_dict, "value": value, "found": found, "partial": partial}
        )
        places.append(place)
    for place, verdict in zip(places, POOL.run(jobs, CHECK_LIMIT_S), strict=True):
        if verdict == "bad schema":
            warn_once(
                f"schema:{place}", "json_schema_reward: a row's schema is not a valid JSON Schema; not scored"
            )
            rewards[place] = None
        else:
            rewards[place] = float(verdict) if isinstance(verdict, int | float) else 0.0
    return rewards


def _schema_dict(wanted: Any) -> Any:
    """A JSON Schema as plain data; None where `wanted` is none."""
    if isinstance(wanted, str):
        try:
            wanted = json.loads(wanted)
        except ValueError:
            return None
    if isinstance(wanted, type) and hasattr(wanted, "model_json_schema"):
        return wanted.model_json_schema()
    return wanted if isinstance(wanted, dict) and wanted else None


def _fits_model(model: Any, value: Any) -> float:
    import pydantic

    try:
        model.model_validate_json(json.dumps(value))
    except (pydantic.ValidationError, ValueError, RecursionError):
        return 0.0
    return 1.0


def judge_here(job: dict[str, Any]) -> float | str:
    """Run in the worker (a schema's `pattern` may backtrack for ever): the reward, or "bad schema"."""
    import jsonschema
    import referencing
    import referencing.exceptions

    schema = job["schema"]
    try:
        kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        kind.check_schema(schema)
    except (jsonschema.SchemaError, RecursionError, AttributeError, TypeError):
        return "bad schema"
    # an empty registry: a schema must not make us fetch anything
    registry: Any = referencing.Registry()
    validator = kind(schema, registry=registry, format_checker=kind.FORMAT_CHECKER)
    try:
        if not job["found"]:
            list(
                validator.iter_errors(None)
            )  # so that a broken $ref is told even where the completion is no JSON
            return 0.0
        if validator.is_valid(job["value"]):
            return 1.0
        return _share(validator, schema, job["value"]) if job["partial"] else 0.0
    except referencing.exceptions.Unresolvable:
        return "bad schema"


def _share(validator: Any, schema: dict[str, Any], value: Any) -> float:
    """The share of the schema's properties that are there and right; an unknown property counts as one
    wrong.
    """
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not isinstance(value, dict) or not properties:
        return 0.0
    names = set(properties) | set(schema.get("required", []))
    right = sum(
        1
        for name in names
        if name in value and validator.evolve(schema=properties.get(name, True)).is_valid(value[name])
    )
    extra = len(set(value) - set(properties))
    return min(0.99, right / (len(names) + extra))
