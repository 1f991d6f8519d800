"""reasoning-gym as a source of verifiable tasks: rows for training, and the reward that scores them.

The extra `advisor[reasoning-gym]` installs the package (https://github.com/open-thought/reasoning-gym).
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence
from typing import Any

from estimators.errors import BadInput
from pipelines.rewards.loading import RewardFunction
from pipelines.rewards.text import completion_text, per_completion, warn_once


def make_rows(name: str, size: int, seed: int, **config: Any) -> list[dict[str, Any]]:
    """`size` rows of the dataset `name`: {"prompt": str, "answer": str, "entry": JSON text of the dataset's
    entry}.

    The same name, size, seed and config give the same rows. Raises BadInput for an unknown dataset or
    setting.
    """
    dataset = _dataset(name, size, seed, json.dumps(config, sort_keys=True))
    rows = []
    for index in range(size):
        entry = dataset[index]
        source = {"name": name, "size": size, "seed": seed, "config": config, "index": index}
        rows.append(
            {
                "prompt": entry["question"],
                "answer": "" if entry["answer"] is None else str(entry["answer"]),
                "entry": json.dumps({**entry, "source": source}, default=str),
            }
        )
    return rows


def reward_for(name: str) -> RewardFunction:
    """The reward of the dataset `name`: the dataset's own verifier on the answer of the completion."""
    _known(name)

    def reasoning_gym_reward(
        completions: Sequence[Any], entry: Sequence[str], **kwargs: Any
    ) -> list[float | None]:
        from pipelines.rewards.reasoning_gym_scoring import score_answers

        entries = per_completion(entry, len(completions), "entry")
        answers = [answer_in(completion_text(c)) for c in completions]
        return score_answers([_source(name, e) for e in entries], answers)

    reasoning_gym_reward.__name__ = f"reasoning_gym_{name}"
    return reasoning_gym_reward


def answer_in(text: str) -> str:
    r"""The answer in a completion: the last `<answer>`, else the last `\boxed{}`, else the text after the
    thinking.
    """
    from pipelines.rewards.maths.extract import last_box

    text = text.rpartition("</think>")[2]
    tagged = re.findall(r"<answer>(.*?)</answer>", text, flags=re.DOTALL)
    if tagged:
        return str(tagged[-1]).strip()
    boxed = last_box(text)
    return (boxed if boxed is not None else text).strip()


def dataset_of(source: dict[str, Any]) -> Any:
    """The dataset that a row's `entry["source"]` names."""
    config = json.dumps(source["config"], sort_keys=True)
    return _dataset(source["name"], int(source["size"]), int(source["seed"]), config)


def _source(name: str, entry: Any) -> dict[str, Any] | None:
    """Where a row comes from; None where its `entry` was not made by `make_rows`."""
    try:
        source = (json.loads(entry) if isinstance(entry, str) else entry)["source"]
        if not {"name", "size", "seed", "config", "index"} <= set(source):
            raise KeyError("source")
    except (ValueError, KeyError, TypeError):
        warn_once(f"reasoning_gym:{name}", f"reasoning_gym:{name}: a row's `entry` was not made by make_rows")
        return None
    return dict(source)


def _known(name: str) -> None:
    from estimators.record import unknown

    datasets = _factory().DATASETS
    if name not in datasets:
        raise unknown("reasoning-gym dataset", name, datasets)


def _factory() -> Any:
    try:
        import reasoning_gym.factory
    except ImportError:
        raise BadInput("reasoning-gym is not installed; run: pip install 'advisor[reasoning-gym]'") from None
    return reasoning_gym.factory


@functools.lru_cache(maxsize=64)
def _dataset(name: str, size: int, seed: int, config: str) -> Any:
    _known(name)
    try:
        return _factory().create_dataset(name, size=size, seed=seed, **json.loads(config))
    except (TypeError, AssertionError, ValueError) as error:
        raise BadInput(f"reasoning-gym dataset {name}: {error}") from None
