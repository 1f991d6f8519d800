"""Numbers with their formulas."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from estimators.terms import Term, formula, term


def test_formulas_read_as_they_were_computed() -> None:
    assert formula(2 * term(7_615_616_512) / 8) == "2 * 7615616512 / 8"
    assert formula((term(3) + 4) * 2.5) == "(3 + 4) * 2.5"
    assert formula(term(10) - (term(3) - 1)) == "10 - (3 - 1)"
    assert formula(12 / (term(3) * 2)) == "12 / (3 * 2)"
    assert formula(1 * term(5) + 0) == "5"
    assert formula(sum([term(2) * 3, term(4)])) == "2 * 3 + 4"
    assert formula(max(term(2) * 3, term(4))) == "2 * 3"
    assert formula(1234) == "1234"


numbers = st.integers(1, 10**6) | st.floats(0.25, 8).map(lambda value: round(value, 4))
expressions = st.recursive(
    numbers.map(term),
    lambda inner: st.tuples(st.sampled_from("+-*/"), inner, inner | numbers).map(lambda made: apply(*made)),
    max_leaves=12,
)


def apply(sign: str, left: Term, right: float) -> Term:
    if sign == "/" and not right:
        return left
    return {"+": left.__add__, "-": left.__sub__, "*": left.__mul__, "/": left.__truediv__}[sign](right)


@given(expressions, numbers)
def test_a_formula_evaluates_to_its_number(made: Term, other: float) -> None:
    for value in (made, other - made, other + made, other * made):
        expected = float(value)
        if abs(expected) < 1e100:
            assert abs(eval(formula(value)) - expected) <= 1e-6 * max(abs(expected), 1)
