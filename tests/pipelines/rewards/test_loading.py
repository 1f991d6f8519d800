"""How a reward is named, and what is said where the name or the file is wrong."""

from __future__ import annotations

import subprocess
import sys

import pytest

from estimators.errors import BadInput
from pipelines.rewards import REWARDS, load_reward, required_columns


@pytest.fixture
def rewards_file(tmp_path):
    (tmp_path / "helper.py").write_text("def right(a, b):\n    return float(a.endswith(b))\n")
    (tmp_path / "rewards.py").write_text(
        "from helper import right\n"
        "def mine(completions, answer, **kwargs):\n"
        "    return [right(c, a) for c, a in zip(completions, answer)]\n"
        "def narrow(completions, answer):\n"
        "    return [right(c, a) for c, a in zip(completions, answer)]\n"
        "def no_completions(answer):\n    return []\n"
        "def positional(completions, /, **kwargs):\n    return []\n"
        "async def later(completions, **kwargs):\n    return []\n"
        "constant = 3\n"
    )
    (tmp_path / "broken.py").write_text("x = 1\ndef f(:\n    pass\n")
    (tmp_path / "raising.py").write_text("x = 1\nraise RuntimeError('no GPU')\n")
    return tmp_path


@pytest.mark.parametrize(
    "name", [*REWARDS, "math_reward", "code_reward", "json_schema_reward", "tool_call_reward"]
)
def test_builtin_names(name, tmp_path):
    assert load_reward(name, tmp_path) is REWARDS[name.removesuffix("_reward")]


def test_a_function_of_a_file_with_its_own_helper(rewards_file):
    function = load_reward("rewards.py:mine", rewards_file)
    assert function(completions=["x 4"], answer=["4"], prompts=["?"]) == [1.0]
    assert required_columns(function) == ["answer"]


def test_keywords_that_a_function_does_not_declare_are_kept_from_it(rewards_file):
    """TRL passes every column and more; a plain (completions, answer) function works all the same."""
    function = load_reward("rewards.py:narrow", rewards_file)
    assert function(prompts=["?"], completions=["x 4"], completion_ids=[[1]], answer=["4"], other=[1]) == [
        1.0
    ]
    assert function.__name__ == "narrow"
    assert required_columns(function) == ["answer"]


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("mth", 'did you mean "math"'),
        ("", "a reward is a name"),
        ("rewards.py", "name the function too"),
        ("reward.py:mine", "rewards.py"),
        ("rewards.py:mien", 'did you mean "mine"'),
        ("rewards.py:constant", "is a int, not a function"),
        ("rewards.py:no_completions", r"rewards.py:6: .*does not take `completions`"),
        ("rewards.py:positional", "positional-only"),
        ("rewards.py:later", "async"),
        ("broken.py:f", r"broken.py:2: not valid Python"),
        ("raising.py:f", r"RuntimeError at .*raising.py:2: no GPU"),
        ("reasoning_gym:chain_sun", 'did you mean "chain_sum"'),
    ],
)
def test_what_is_said(spec, says, rewards_file):
    with pytest.raises(BadInput, match=says):
        load_reward(spec, rewards_file)


def test_importing_the_package_is_light():
    heavy = ("torch", "sympy", "pydantic", "trl")
    code = f"import sys, pipelines.rewards; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
