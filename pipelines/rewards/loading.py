"""How a reward is named: a built-in name, `file.py:function`, or `reasoning_gym:NAME`."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from estimators.errors import BadInput

RewardFunction = Callable[..., list[float | None]]

GIVEN_BY_TRL = frozenset(
    {"prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric"}
)
"""What TRL passes to every reward besides the columns of the dataset."""


def load_reward(spec: str, base_dir: Path) -> RewardFunction:
    """The reward function that `spec` names; raises BadInput that says what is wrong and how to mend it.

    `spec`: a name in REWARDS ("math" or "math_reward"), `file.py:function` with the path relative to
    `base_dir`, or `reasoning_gym:NAME`.
    """
    from estimators.record import unknown
    from pipelines.rewards import REWARDS

    if not isinstance(spec, str) or not spec.strip():
        raise BadInput(f"a reward is a name or file.py:function, found {spec!r}. Known: {', '.join(REWARDS)}")
    spec = spec.strip()
    for name in (spec, spec.removesuffix("_reward")):
        if name in REWARDS:
            return REWARDS[name]
    if spec.startswith("reasoning_gym:"):
        from pipelines.rewards.reasoning_gym_source import reward_for

        return reward_for(spec.partition(":")[2])
    if ":" in spec or spec.endswith(".py") or "/" in spec:
        return _from_file(spec, base_dir)
    raise unknown("reward", spec, [*REWARDS, "file.py:function", "reasoning_gym:NAME"])


def required_columns(function: Callable[..., Any]) -> list[str]:
    """The dataset columns that a reward cannot be called without, in the order of its signature."""
    return [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        and name not in GIVEN_BY_TRL
    ]


def _from_file(spec: str, base_dir: Path) -> RewardFunction:
    from estimators.record import nearest, unknown

    path_text, colon, name = spec.rpartition(":")
    if not colon or not path_text or not name.isidentifier():
        raise BadInput(f"reward {spec!r}: name the function too, as file.py:function")
    path = Path(path_text).expanduser()
    path = path if path.is_absolute() else base_dir / path
    if not path.is_file():
        siblings = [p.name for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
        guess = nearest(path.name, siblings)
        hint = f'; did you mean "{path.parent / guess}"?' if guess else ""
        raise BadInput(f"reward {spec!r}: there is no file {path}{hint}")
    module = _import_file(path, spec)
    if not hasattr(module, name):
        functions = [
            n for n, v in vars(module).items() if inspect.isfunction(v) and v.__module__ == module.__name__
        ]
        raise unknown(f"function in {path}", name, functions)
    function = getattr(module, name)
    _check_signature(function, spec, path)
    return _passing_known_keywords(function)


def _import_file(path: Path, spec: str) -> ModuleType:
    """The module in `path`, under a name of its own so that no installed module is shadowed."""
    module_name = f"_reward_file_{path.stem}_{abs(hash(path.resolve())):x}"
    import_spec = importlib.util.spec_from_file_location(module_name, path)
    assert import_spec is not None
    assert import_spec.loader is not None
    module = importlib.util.module_from_spec(import_spec)
    sys.modules[module_name] = module
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)  # for the user's own helper modules; at the end, so that nothing is shadowed
    try:
        import_spec.loader.exec_module(module)
    except SyntaxError as error:
        sys.modules.pop(module_name, None)
        raise BadInput(f"{path}:{error.lineno}: not valid Python: {error.msg}") from None
    except Exception as error:
        sys.modules.pop(module_name, None)
        raise BadInput(
            f"reward {spec!r}: importing it raised {type(error).__name__} at {where(error, path)}: {error}"
        ) from error
    return module


def where(error: BaseException, path: Path | None = None) -> str:
    """`file:line` of the innermost frame of `error`, or of the innermost one inside `path` where there is
    one.
    """
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return str(path) if path else "an unknown place"
    inside = [f for f in frames if path is not None and Path(f.filename).resolve() == path.resolve()]
    frame = (inside or list(frames))[-1]
    return f"{frame.filename}:{frame.lineno}"


def _check_signature(function: Any, spec: str, path: Path) -> None:
    if not callable(function):
        raise BadInput(f"reward {spec!r}: it is a {type(function).__name__}, not a function")
    if inspect.iscoroutinefunction(function):
        raise BadInput(f"reward {spec!r}: an async function is not supported; make it a plain def")
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        raise BadInput(
            f"reward {spec!r}: its signature cannot be read; make it a plain Python function"
        ) from None
    line = getattr(getattr(function, "__code__", None), "co_firstlineno", 1)
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    if "completions" not in parameters and not takes_any:
        raise BadInput(
            f"{path}:{line}: reward {getattr(function, '__name__', spec)}({', '.join(parameters)}) does not "
            "take `completions`; the signature is (completions, your_columns, **kwargs) -> list of numbers"
        )
    for parameter in parameters.values():
        if parameter.kind is parameter.POSITIONAL_ONLY and parameter.default is parameter.empty:
            raise BadInput(
                f"{path}:{line}: parameter {parameter.name} is positional-only, but rewards are called "
                "with keywords; remove the `/`"
            )


def _passing_known_keywords(function: Callable[..., Any]) -> RewardFunction:
    """`function`, not bothered with keywords that it does not declare: TRL passes every column of the
    dataset.
    """
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return function

    @functools.wraps(function)
    def reward(completions: Any, **columns: Any) -> Any:
        known = {name: value for name, value in columns.items() if name in parameters}
        return function(completions=completions, **known)

    return reward
