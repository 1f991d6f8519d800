"""Numbers that remember how they were computed, so that every size can be shown with its sum.

The estimators compute once: `2 * term(7_615_616_512) / 8` is a float, and `formula` of it is the text
"2 * 7615616512 / 8". A size that is chosen (the larger of two moments, a cap) keeps the formula of the one
that was chosen. Numbers that are no terms stand in a formula as they are.
"""

from __future__ import annotations

_RANK = {"+": 1, "-": 1, "*": 2, "/": 2}


class Term(float):
    """A float with its formula. Arithmetic with it gives terms, and drops + 0 and * 1."""

    __slots__ = ("_made",)
    _made: tuple[str, float, float] | None

    def __new__(cls, value: float, made: tuple[str, float, float] | None = None) -> Term:
        self = super().__new__(cls, value)
        self._made = made
        return self

    def __add__(self, other: float) -> Term:
        if not self:
            return other if isinstance(other, Term) else Term(other)
        return Term(float.__add__(self, other), ("+", self, other)) if other else self

    def __radd__(self, other: float) -> Term:
        if not self:
            return Term(other)
        return Term(float.__radd__(self, other), ("+", other, self)) if other else self

    def __sub__(self, other: float) -> Term:
        return Term(float.__sub__(self, other), ("-", self, other)) if other else self

    def __rsub__(self, other: float) -> Term:
        return Term(float.__rsub__(self, other), ("-", other, self))

    def __mul__(self, other: float) -> Term:
        if self == 1.0:
            return other if isinstance(other, Term) else Term(other)
        return Term(float.__mul__(self, other), ("*", self, other)) if other != 1 else self

    def __rmul__(self, other: float) -> Term:
        if self == 1.0:
            return Term(other)
        return Term(float.__rmul__(self, other), ("*", other, self)) if other != 1 else self

    def __truediv__(self, other: float) -> Term:
        return Term(float.__truediv__(self, other), ("/", self, other)) if other != 1 else self

    def __rtruediv__(self, other: float) -> Term:
        return Term(float.__rtruediv__(self, other), ("/", other, self))


def term(value: float) -> Term:
    """`value` as the leaf of formulas: a number of parameters, tokens or bytes."""
    return Term(value)


def formula(value: float) -> str:
    """How `value` was computed, in numbers, + - * / and brackets."""
    return _text(value, 0, right=False)


def _text(value: float, outer: int, right: bool) -> str:
    made = value._made if isinstance(value, Term) else None
    if made is None or not value:
        return str(int(value)) if value == int(value) else f"{value:.12g}"
    sign, first, second = made
    rank = _RANK[sign]
    text = f"{_text(first, rank, right=False)} {sign} {_text(second, rank, right=sign in '-/')}"
    return f"({text})" if rank < outer or (rank == outer and right) else text
