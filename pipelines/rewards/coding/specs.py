"""The tests of a row: every accepted spelling, made into one."""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass
from typing import Any


class UnusableTests(ValueError):
    """The row's tests cannot be run: the row is not scored."""


@dataclass(frozen=True)
class StdinTest:
    """A program gets `stdin` on a pipe and must print `stdout`."""

    stdin: str
    stdout: str


@dataclass(frozen=True)
class Tests:
    """What a row asks: stdin tests, or checks (asserts and calls) that the examiner understands."""

    stdin: list[StdinTest]
    checks: list[dict[str, Any]]


def read_tests(tests: Any, entry_point: str | None) -> Tests:
    """The tests of a row; UnusableTests where there are none, or one that cannot run.

    Accepts a list, or its JSON text, of `{"code"}`, `{"stdin", "stdout"}` (also `input`, `output`) and
    `{"args", "kwargs", "returns"}`; strings of Python; and LiveCodeBench's `{"inputs": [...], "outputs":
    [...]}`.
    """
    if isinstance(tests, str):
        tests = _from_text(tests)
    if isinstance(tests, dict):
        tests = _columns(tests)
    if not isinstance(tests, list | tuple) or not tests:
        raise UnusableTests("no tests")
    stdin: list[StdinTest] = []
    checks: list[dict[str, Any]] = []
    for test in tests:
        if isinstance(test, str):
            checks.append({"code": _python(test)})
        elif isinstance(test, dict):
            _read_one({k: v for k, v in test.items() if v is not None}, stdin, checks)
        else:
            raise UnusableTests(f"a test is a {type(test).__name__}")
    if any("returns" in check for check in checks) and not entry_point:
        raise UnusableTests("a call test needs an entry_point")
    return Tests(stdin, checks)


def _from_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return [text]


def _columns(tests: dict[str, Any]) -> Any:
    inputs, outputs = tests.get("inputs"), tests.get("outputs")
    if isinstance(inputs, list) and isinstance(outputs, list) and len(inputs) == len(outputs):
        return [{"stdin": i, "stdout": o} for i, o in zip(inputs, outputs, strict=True)]
    return [tests]


def _read_one(test: dict[str, Any], stdin: list[StdinTest], checks: list[dict[str, Any]]) -> None:
    if "code" in test:
        checks.append({"code": _python(test["code"])})
    elif "stdin" in test or ("input" in test and "output" in test):
        given, wanted = test.get("stdin", test.get("input")), test.get("stdout", test.get("output"))
        if not isinstance(given, str) or not isinstance(wanted, str):
            raise UnusableTests("stdin and stdout must be strings")
        stdin.append(StdinTest(given, wanted))
    elif "returns" in test:
        arguments, keywords = test.get("args", []), test.get("kwargs", {})
        if not isinstance(arguments, list | tuple) or not isinstance(keywords, dict):
            raise UnusableTests("args must be a list and kwargs an object")
        checks.append({"args": list(arguments), "kwargs": keywords, "returns": test["returns"]})
    elif "stdout" in test:
        stdin.append(StdinTest("", str(test["stdout"])))
    else:
        raise UnusableTests(f"a test has none of code, stdin/stdout, args/returns: {sorted(test)}")


def _python(code: Any) -> str:
    import warnings

    if not isinstance(code, str) or not code.strip():
        raise UnusableTests("an empty test")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if not ast.parse(code).body:
                raise UnusableTests("an empty test")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UnusableTests(f"a test is not valid Python: {error}") from None
    return code
