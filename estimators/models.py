"""Which model is meant: a hub id, a folder or a `config.json`, and the shape that follows from it.

A hub id is looked up in the built-in catalogue, then in the local cache, then on the hub with one short try:
without a network the answer, or the error, comes within 1.5 seconds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from estimators.errors import BadInput
from estimators.families import UnknownFamily, read_shape
from estimators.record import nearest, read_text
from estimators.shapes import ModelShape

HUB_TIMEOUT_SECONDS = 1.0


def cache_folder() -> Path:
    """Where answers that take long are kept: $XDG_CACHE_HOME/advisor, or ~/.cache/advisor."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "advisor"


@cache
def catalogue() -> dict[str, dict[str, Any]]:
    """The configs of well-known models, by hub id."""
    text = resources.files("estimators").joinpath("data/catalogue.json").read_text(encoding="utf-8")
    return {model: entry["config"] for entry in json.loads(text) for model in entry["ids"]}


@cache
def _short_names() -> dict[str, str]:
    """Catalogue ids by their last part, in lower case."""
    return {model.split("/")[-1].lower(): model for model in reversed(catalogue())}


@lru_cache(maxsize=512)
def find_shape(model: str) -> ModelShape:
    """The shape of `model`: a folder, a `config.json`, or a hub id. BadInput where it cannot be found."""
    return shape_of_config(*find_config(model))


def find_config(model: str) -> tuple[dict[str, Any], str]:
    """The config of `model`, and the name to show for it."""
    if not model.strip():
        raise BadInput("no model is named; give a hub id, a folder or a config.json")
    path = Path(model).expanduser()
    if path.is_dir():
        return _read_config(path / "config.json"), model
    if path.is_file() or path.suffix == ".json":
        return _read_config(path), model
    known = catalogue()
    if model in known:
        return known[model], model
    short = _short_names().get(model.lower()) if "/" not in model else None
    if short:
        return known[short], short
    cached = _cached_config(model)
    if cached is not None:
        return _read_config(cached), model
    if model.startswith((".", "/", "~")) or model.count("/") > 1:
        raise BadInput(f"{model}: no such folder; a model is a folder with config.json, or a hub id")
    try:
        return _download_config(model), model
    except BadInput:
        mirrored = _short_names().get(model.split("/")[-1].lower())
        if mirrored is None:
            raise
        return known[mirrored], mirrored  # another owner's copy under the same name


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise BadInput(f"{path}:{error.lineno}:{error.colno}: not valid JSON: {error.msg}") from None
    if not isinstance(config, dict):
        raise BadInput(f"{path}: expected an object with model_type and sizes, found {type(config).__name__}")
    return config


def _cached_config(model: str) -> Path | None:
    """The newest config.json of `model` in the hub's local cache."""
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    hub = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    snapshots = hub / f"models--{model.replace('/', '--')}" / "snapshots"
    try:
        found = [path for path in snapshots.glob("*/config.json") if path.is_file()]
    except OSError:
        return None
    return max(found, key=lambda path: path.stat().st_mtime) if found else None


def _download_config(model: str) -> dict[str, Any]:
    """One try at the hub, a second long."""
    guess = nearest(model, catalogue()) or nearest(model.split("/")[-1], _short_names())
    hint = f' Did you mean "{_short_names().get(guess, guess)}"?' if guess else ""
    remedy = f"give a folder with its config.json, or a model of the catalogue.{hint}"
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        raise BadInput(
            f'"{model}" is not in the catalogue nor in the local cache, and HF_HUB_OFFLINE is set; {remedy}'
        )
    config = _fetch(model)
    if isinstance(config, str):
        raise BadInput(f'"{model}" is not in the catalogue nor in the local cache, and {config}; {remedy}')
    return config


def _fetch(model: str) -> dict[str, Any] | str:
    """The config from the hub, or why there is none. A thread bounds name resolution, which has no
    timeout."""
    import threading

    answer: list[dict[str, Any] | str] = []

    def ask() -> None:
        import urllib.error
        import urllib.request

        endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
        headers = {"User-Agent": "advisor"}
        if os.environ.get("HF_TOKEN"):
            headers["Authorization"] = f"Bearer {os.environ['HF_TOKEN']}"
        request = urllib.request.Request(f"{endpoint}/{model}/resolve/main/config.json", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=HUB_TIMEOUT_SECONDS) as reply:
                config = json.loads(reply.read())
            answer.append(config if isinstance(config, dict) else "its config.json is no object")
        except urllib.error.HTTPError as error:
            reasons = {
                401: "the hub knows no such public model",
                403: "access to it is gated",
                404: "the hub has none",
            }
            answer.append(reasons.get(error.code, f"the hub answered {error.code}"))
        except Exception:
            answer.append("the hub cannot be reached")

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(HUB_TIMEOUT_SECONDS + 0.1)
    return answer[0] if answer else "the hub did not answer within a second"


def shape_of_config(config: Mapping[str, Any], name: str) -> ModelShape:
    """The shape that `config` describes; the text decoder of a multimodal one."""
    inner = config.get("text_config")
    if isinstance(inner, dict) and "hidden_size" in inner and "model_type" in inner:
        merged = {**inner}
        merged.setdefault("tie_word_embeddings", config.get("tie_word_embeddings", False))
        config = merged
    try:
        return read_shape(config, name)
    except UnknownFamily:
        from estimators.counting import count_modules

        return count_modules(config, name)
