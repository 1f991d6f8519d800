"""The few names of pytest that datasets' tests use; the package itself is not in the sandbox."""

from __future__ import annotations

import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def make_pytest() -> types.ModuleType:
    """A module that `import pytest` finds."""
    shim = types.ModuleType("pytest")

    class Raises:
        def __init__(self, kind: Any, match: str | None = None) -> None:
            self.kind, self.match, self.value = kind, match, None

        def __enter__(self) -> Raises:
            return self

        def __exit__(self, kind: Any, value: Any, trace: Any) -> bool:
            import re

            if kind is None:
                raise AssertionError("did not raise")
            self.value = value
            matches = issubclass(kind, self.kind if isinstance(self.kind, tuple) else (self.kind,))
            return matches and (self.match is None or re.search(self.match, str(value)) is not None)

    class Approx:
        def __init__(self, expected: Any, rel: float | None = None, abs: float | None = None) -> None:
            self.expected, self.rel, self.abs = (
                expected,
                1e-6 if rel is None else rel,
                1e-12 if abs is None else abs,
            )

        def __eq__(self, other: object) -> bool:
            if isinstance(self.expected, list | tuple):
                return (
                    isinstance(other, list | tuple)
                    and len(other) == len(self.expected)
                    and all(
                        Approx(e, self.rel, self.abs) == o for e, o in zip(self.expected, other, strict=True)
                    )
                )
            if isinstance(other, bool) or not isinstance(other, int | float | complex):
                return False
            return bool(abs(other - self.expected) <= max(self.rel * abs(self.expected), self.abs))

        __hash__ = None  # type: ignore[assignment]

    def fail(reason: str = "") -> None:
        raise AssertionError(reason)

    def parametrize(names: Any, values: Any, **_: Any) -> Any:
        keys = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)

        def wrap(function: Any) -> Any:
            def test() -> None:
                for value in values:
                    given = value if len(keys) > 1 else (value,)
                    function(**dict(zip(keys, given, strict=True)))

            return test

        return wrap

    def passthrough(*_: Any, **__: Any) -> Any:
        return lambda function: function

    mark = types.SimpleNamespace(
        parametrize=parametrize, timeout=passthrough, asyncio=lambda function: function
    )
    shim.__dict__.update(
        raises=Raises, approx=Approx, fail=fail, mark=mark, fixture=lambda function: function
    )
    return shim
