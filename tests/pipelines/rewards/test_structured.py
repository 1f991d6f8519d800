"""`json_schema_reward` and `tool_call_reward`."""

from __future__ import annotations

import json

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.rewards import json_schema_reward, tool_call_reward
from pipelines.rewards.toolcalls import canonical

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "string", "format": "date"}},
    "required": ["a"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ('{"a": 1}', 1.0),
        ('```json\n{"a": 1, "b": "2020-01-02"}\n```', 1.0),
        ('```JSON\n{"a": 1}\n```\nI hope this helps.', 1.0),
        ('Here it is: {"a": 1}. Anything else?', 1.0),
        ('<think>{"a": "no"}</think>{"a": 2}', 1.0),
        ('{"a": 5} or rather {"a": "x"}', 0.0),
        ('{"a": "x"} or rather {"a": 5}', 1.0),
        ('[1, 2] and {"a": 5}', 1.0),
        ('{"a": 1, "b": "no date"}', 0.0),
        ('{"a": 1, "a": 1}', 0.0),
        ('{"a": NaN}', 0.0),
        ('{"a": 1e999}', 0.0),
        ('{"a": true}', 0.0),
        ('{"a": 1.0}', 1.0),
        ('{"a": 1, "c": 2}', 0.0),
        ("{'a': 1}", 0.0),
        ('{"a": 1', 0.0),
        ("", 0.0),
        ("null", 0.0),
        ("[" * 100_000, 0.0),
        ('{"a":' * 5000 + "1" + "}" * 5000, 0.0),
    ],
)
def test_json(text, reward):
    assert json_schema_reward([text], schema=[SCHEMA]) == [reward]
    assert json_schema_reward([[{"role": "assistant", "content": text}]], schema=[json.dumps(SCHEMA)]) == [
        reward
    ]


def test_unusable_schemas_are_none():
    broken = [
        None,
        "",
        "{",
        {},
        7,
        {"type": "foo"},
        {"$ref": "http://example.invalid/x"},
        {"$ref": "#/nowhere"},
    ]
    assert json_schema_reward(['{"a": 1}'] * len(broken), schema=broken) == [None] * len(broken)


def test_partial_credit_is_the_share_of_properties():
    """{a, b}: a wrong, b right: 1/2; one unknown property more: 1/3; all right: 1."""
    texts = ['{"a": "x", "b": "2020-01-01"}', '{"a": "x", "b": "2020-01-01", "c": 1}', '{"a": 1}', "[]", "{}"]
    assert json_schema_reward(texts, schema=[SCHEMA] * 5, partial=True) == pytest.approx(
        [1 / 2, 1 / 3, 1, 0, 0]
    )


def test_pydantic_model():
    class Person(pydantic.BaseModel):
        name: str
        age: int = pydantic.Field(ge=0)

    texts = ['{"name": "A", "age": 3}', '{"name": "A", "age": -1}', '{"name": "A"}', "{}", "no"]
    assert json_schema_reward(texts, schema=Person) == [1.0, 0.0, 0.0, 0.0, 0.0]


def test_a_pattern_that_never_ends_costs_one_check():
    slow = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
    text = json.dumps({"a": "a" * 40 + "!"})
    assert json_schema_reward([text, '{"a": "aa"}'], schema=[slow] * 2) == [0.0, 1.0]


GOLD = [{"name": "f", "arguments": {"x": 1, "y": None}}, {"name": "g", "arguments": {}}]


def hermes(*calls):
    return "\n".join(f"<tool_call>\n{json.dumps(c)}\n</tool_call>" for c in calls)


F, G = {"name": "f", "arguments": {"x": 1}}, {"name": "g", "arguments": {}}


OPENAI = [
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}},
            {"id": "2", "type": "function", "function": {"name": "g", "arguments": ""}},
        ],
    }
]
TURNS = [
    {"role": "assistant", "tool_calls": [{"function": F}]},
    {"role": "tool", "content": "1"},
    {"role": "assistant", "tool_calls": [{"function": G}]},
    {"role": "assistant", "content": "done"},
]


@pytest.mark.parametrize(
    ("completion", "reward"),
    [
        (hermes(F, G), 1.0),
        (hermes(G, F), 1.0),
        ("<think>f or g?</think>" + hermes(G, F), 1.0),
        (hermes({"name": "f", "arguments": {"x": 1.0, "z": None}}, G), 1.0),
        (json.dumps([F, G]), 1.0),
        ("```json\n" + json.dumps([F, G]) + "\n```", 1.0),
        ([{"role": "assistant", "tool_calls": [{"type": "function", "function": F}, {"function": G}]}], 1.0),
        (OPENAI, 1.0),
        (TURNS, 1.0),
        (hermes(F), 0.0),
        (hermes(F, G, G), 0.0),
        (hermes(F, F), 0.0),
        (hermes({"name": "f", "arguments": {"x": 2}}, G), 0.0),
        (hermes({"name": "f", "arguments": {"x": "1"}}, G), 0.0),
        (hermes({"name": "f", "arguments": {"x": True}}, G), 0.0),
        (hermes({"name": "f", "arguments": {"x": 1, "extra": 0}}, G), 0.0),
        (hermes({"name": "F", "arguments": {"x": 1}}, G), 0.0),
        (hermes(F, G) + "<tool_call>{", 0.0),
        ('<tool_call>{"name": "f", "arguments": {"x": 1, "x": 1}}</tool_call>' + hermes(G), 0.0),
        ("I would call f and g.", 0.0),
        ("", 0.0),
    ],
)  # fmt: skip
def test_tool_calls(completion, reward):
    assert tool_call_reward([completion], tool_calls=[GOLD]) == [reward]
    assert tool_call_reward([completion], tool_calls=[json.dumps(GOLD)]) == [reward]


def test_no_call_is_wanted():
    assert tool_call_reward(["It is sunny.", hermes(F), ""], tool_calls=[[], [], []]) == [1.0, 0.0, 0.0]


def test_unusable_golds_are_none():
    golds = [None, "f(x)", [{"arguments": {}}], [7], {"name": 3}]
    assert tool_call_reward(["x"] * 5, tool_calls=golds) == [None] * 5


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=3), JSON, max_size=4))
def test_law_key_order_and_padding_change_nothing(arguments):
    padded = {**dict(reversed(arguments.items())), "padding padding": None}
    assert canonical(arguments) == canonical(padded)


@settings(max_examples=150, deadline=None)
@given(
    st.one_of(st.text(max_size=60), JSON.map(json.dumps), JSON, st.lists(st.dictionaries(st.text(), JSON)))
)
def test_never_an_exception_never_outside_the_range(completion):
    for value in (
        *json_schema_reward([completion], schema=[SCHEMA], partial=True),
        *tool_call_reward([completion], tool_calls=[GOLD]),
    ):
        assert value is None or 0.0 <= value <= 1.0
