"""Whether two parsed answers are the same: values exactly, structures part by part."""

# mypy: disable-error-code="no-any-return"
# (a node is a tuple whose entries depend on its first one: the kind is checked, not the type)

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from pipelines.rewards.maths.parser import Node
from pipelines.rewards.maths.values import (
    NotReal,
    TooBig,
    Undefined,
    contains,
    exact,
    mp,
    number,
    substitute,
    symbols,
)

STRUCTURES = frozenset(
    {
        "tuple",
        "set",
        "list",
        "matrix",
        "rel",
        "union",
        "minus",
        "inter",
        "empty",
        "reals",
        "ratio",
        "builder",
        "and_",
        "or_",
        "base",
        "dots",
    }
)
INF = ("const", "inf")
MINUS_INF = ("neg", INF)
Piece = tuple[Any, Any, bool, bool, Node, Node]
"""An interval: low and high as numbers, whether each end belongs to it, and both ends as nodes."""


def equal(gold: Node, pred: Node) -> bool:
    """Whether `pred` is the same answer as `gold`."""
    if gold == pred:
        return _defined(gold)
    for left, right in ((gold, pred), (pred, gold)):
        if left[0] == "rel" and "~" in left[1]:
            return _roughly_equal(left[2]) and any(equal(side, right) for side in left[2])
    gold_parts, pred_parts = expand_signs(gold), expand_signs(pred)
    if len(gold_parts) > 1 or len(pred_parts) > 1:
        return _same_items(_flatten(gold_parts), _flatten(pred_parts))
    gold, pred = gold_parts[0], pred_parts[0]
    if gold[0] == "list" or pred[0] == "list":
        return _lists(gold, pred)
    gold, pred = _value_of(gold, pred), _value_of(pred, gold)
    if gold[0] == "set" and len(gold[1]) == 1 and pred[0] not in STRUCTURES:
        gold = gold[1][0]
    elif pred[0] == "set" and len(pred[1]) == 1 and gold[0] not in STRUCTURES:
        pred = pred[1][0]
    if gold[0] not in STRUCTURES and pred[0] not in STRUCTURES:
        return same_value(gold, pred)
    return _structures(gold, pred)


def _roughly_equal(sides: Sequence[Node]) -> bool:
    """Whether the sides of `a = b ≈ c` are one number, its decimals rounded: one answer, not several."""
    try:
        values = [number(side, {}) for side in sides if not _is_name(side)]
    except (Undefined, TooBig, NotReal, KeyError):
        return False
    return all(abs(v - values[0]) <= abs(values[0]) / 100 for v in values[1:])


def _structures(gold: Node, pred: Node) -> bool:
    kinds = {gold[0], pred[0]}
    if "rel" in kinds and _equations(gold, pred):
        return True
    if "matrix" in kinds:
        return _matrices(gold, pred)
    if "base" in kinds:
        return _bases(gold, pred)
    if "ratio" in kinds:
        return _ratios(gold, pred)
    if kinds <= {"tuple"}:
        return _tuples(gold, pred)
    if kinds <= {"set", "empty"}:
        return _same_items(_items(gold), _items(pred), as_sets=True)
    if "dots" in kinds:
        return gold == pred
    return _regions(gold, pred)


def _items(node: Node) -> Sequence[Node]:
    return () if node[0] == "empty" else node[1]


# --- values ---


def same_value(gold: Node, pred: Node) -> bool:
    """Whether two expressions have the same value for all values of their variables."""
    if gold[0] == "pct" or pred[0] == "pct":
        return _percents(gold, pred)
    names = sorted(symbols(gold) | symbols(pred))
    if not names:
        return _same_constant(gold, pred)
    logs = (True, False) if contains((gold, pred), "log") else (True,)
    return any(_same_at_samples(gold, pred, names, natural) for natural in logs)


def _percents(gold: Node, pred: Node) -> bool:
    if gold[0] == pred[0] == "pct":
        return same_value(gold[1], pred[1])
    percent, other = (gold, pred) if gold[0] == "pct" else (pred, gold)
    return same_value(percent[1], other) or same_value(("div", percent[1], ("num", Fraction(100))), other)


def _same_constant(gold: Node, pred: Node) -> bool:
    try:
        left, right = exact(gold), exact(pred)
    except (Undefined, TooBig):
        return False
    if left is not None and right is not None:
        return left == right
    logs = (True, False) if contains((gold, pred), "log") else (True,)
    return any(_close_constants(gold, pred, natural) for natural in logs)


def _close_constants(gold: Node, pred: Node, natural: bool) -> bool:
    for digits in (50, 220):
        mp.dps = digits
        try:
            left, right = number(gold, {}, natural), number(pred, {}, natural)
            if not _close(left, right):
                return False
        except (Undefined, TooBig, NotReal):
            return False
        finally:
            mp.dps = 50
    return True


def _close(left: Any, right: Any) -> bool:
    if mp.isinf(left) or mp.isinf(right):
        return bool(left == right)
    scale = max(abs(left), abs(right))
    if scale == 0:
        return True
    difference = abs(left - right)
    noise = mp.mpf(10) ** (25 - mp.dps)  # what rounding leaves of an exact zero
    return bool(difference <= (noise if scale < noise else scale * mp.mpf(10) ** (20 - mp.dps)))


def _same_at_samples(gold: Node, pred: Node, names: list[str], natural: bool) -> bool:
    integers = contains((gold, pred), "fact", "binom", "sum", "prod", "many", "mod")
    draw = random.Random(f"{gold!r}{pred!r}"[:2000])
    agreed = positive_agreed = 0
    for attempt in range(24):
        env = {name: _sample(draw, attempt, integers, position) for position, name in enumerate(names)}
        try:
            wanted = number(gold, env, natural)
        except (Undefined, NotReal):
            continue
        except TooBig:
            return False
        try:
            found = number(pred, env, natural)
        except TooBig:
            return False
        except (Undefined, NotReal):
            if attempt < 3:
                return False  # the gold has a value at a positive point and this has none
            continue
        wanted_real, found_real = _is_real(wanted), _is_real(found)
        if wanted_real != found_real and not contains(gold, "const") and not contains(pred, "const"):
            continue
        if not _close(wanted, found):
            return False
        agreed += 1
        positive_agreed += attempt < 12
        if agreed >= 7:
            return True
    return agreed >= 2 and positive_agreed >= 1


def _sample(draw: random.Random, attempt: int, integers: bool, position: int) -> Any:
    """Positive points first, then any sign; fractions with large parts, so that no root is hit by chance."""
    if integers:
        return mp.mpf(draw.randint(1, 4 + attempt))
    value = mp.mpf(draw.randint(10**12, 10**13)) / draw.randint(10**12, 10**13)
    if attempt % 3 == 1:
        value = 1 / (1 + value)
    elif attempt % 3 == 2:
        value *= 7
    if attempt < 3 or attempt == 6:
        return value
    if attempt in (3, 4, 5):  # all negative, then the signs by turns: sqrt(x^2) is not x
        return -value if attempt == 3 or (position + attempt) % 2 == 0 else value
    return value if draw.random() < 0.5 else -value


def _is_real(value: Any) -> bool:
    return not isinstance(value, mp.mpc) or abs(value.imag) <= mp.mpf(10) ** -30 * (1 + abs(value.real))


def _defined(node: Node) -> bool:
    """Whether no part of a constant divides by zero: an undefined answer equals nothing, not even itself."""
    if node[0] in STRUCTURES or symbols(node) or contains(node, "pm"):
        return True
    try:
        if exact(node) is None:
            number(node, {})
    except Undefined:
        return contains(node, "const")
    except (TooBig, NotReal, KeyError):
        return True
    return True


# --- signs, names, lists ---


def expand_signs(node: Node) -> list[Node]:
    """Both readings of an answer with plus-minus; the answer itself where there is none."""
    if not contains(node, "pm"):
        return [node]
    if node[0] in ("list", "set"):
        items = [part for item in node[1] for part in expand_signs(item)]
        return [(node[0], tuple(items))]
    upper, lower = _choose_sign(node, True), _choose_sign(node, False)
    return [upper, lower]


def _choose_sign(node: Any, plus: bool) -> Any:
    if not isinstance(node, tuple):
        return node
    if node and node[0] == "pm":
        positive = node[1] is plus
        right = _choose_sign(node[3], plus)
        signed = right if positive else ("neg", right)
        return signed if node[2] is None else ("add", _choose_sign(node[2], plus), signed)
    return tuple(_choose_sign(part, plus) for part in node)


def _flatten(nodes: Sequence[Node]) -> list[Node]:
    items: list[Node] = []
    for node in nodes:
        items.extend(node[1] if node[0] in ("list", "set") else [node])
    return items


def _lists(gold: Node, pred: Node) -> bool:
    gold_items, pred_items = _list_items(gold), _list_items(pred)
    if gold_items is None or pred_items is None:
        return False
    gold_names, pred_names = _names(gold_items), _names(pred_items)
    distinct_gold = gold_names is not None and len(set(gold_names)) == len(gold_names) > 1
    distinct_pred = pred_names is not None and len(set(pred_names)) == len(pred_names) > 1
    if distinct_gold and distinct_pred and set(gold_names or ()) != set(pred_names or ()):
        return False
    if (distinct_gold and not distinct_pred) or (distinct_pred and not distinct_gold):
        if _subscripted(gold_names if distinct_gold else pred_names):
            return _same_items([_right_side(g) for g in gold_items], [_right_side(p) for p in pred_items])
        return len(gold_items) == len(pred_items) and all(
            equal(_right_side(g), _right_side(p)) for g, p in zip(gold_items, pred_items, strict=True)
        )
    if gold[0] == "tuple" or pred[0] == "tuple":  # a bare list may be the tuple without its brackets
        return len(gold_items) == len(pred_items) and all(
            equal(g, p) for g, p in zip(gold_items, pred_items, strict=True)
        )
    if contains((gold, pred), "dots"):
        return len(gold_items) == len(pred_items) and all(
            equal(g, p) for g, p in zip(gold_items, pred_items, strict=True)
        )
    return _same_items(gold_items, pred_items)


def _list_items(node: Node) -> Sequence[Node] | None:
    if node[0] in ("list", "set"):
        return node[1]
    if node[0] == "tuple" and ((node[1], node[2]) == ("(", ")") or (node[1] == "[" and len(node[3]) > 2)):
        return node[3]
    if (
        node[0] == "rel"
        and set(node[1]) <= {"=", "in"}
        and len(node[2]) == 2
        and node[2][1][0] in ("set", "tuple", "list")
    ):
        return _list_items(node[2][1])
    return None


def _names(items: Sequence[Node]) -> list[str] | None:
    names = []
    for item in items:
        if item[0] != "rel" or item[1] != ("=",) or item[2][0][0] != "sym":
            return None
        names.append(item[2][0][1])
    return names


def _subscripted(names: list[str] | None) -> bool:
    return bool(names) and len({n.split("_")[0] for n in names or ()}) == 1


def _right_side(item: Node) -> Node:
    return item[2][-1] if item[0] == "rel" and item[1] == ("=",) and item[2][0][0] == "sym" else item


def _same_items(gold: Sequence[Node], pred: Sequence[Node], as_sets: bool = False) -> bool:
    """Whether the items can be paired off, in any order. Sets ignore repetitions, lists do not."""
    if len(gold) > 200 or len(pred) > 200:
        return False
    if as_sets:
        return all(any(equal(g, p) for p in pred) for g in gold) and all(
            any(equal(g, p) for g in gold) for p in pred
        )
    if len(gold) != len(pred):
        return False
    left = list(pred)
    for item in gold:
        match = next((k for k, p in enumerate(left) if equal(item, p)), None)
        if match is None:
            return False
        del left[match]
    return True


def _value_of(node: Node, other: Node) -> Node:
    """The value that `x = 5`, `f(x) = x^2` or `x \\in S` gives, where the other side is no equation
    itself.
    """
    if node[0] != "rel":
        return node
    operators, sides = node[1], node[2]
    if operators == ("in",) and sides[0][0] == "sym" and other[0] != "rel":
        return sides[1]
    if set(operators) != {"="}:
        return node
    other_is_equation = other[0] == "rel" and set(other[1]) == {"="}
    if other_is_equation:
        same_name = _is_name(sides[0]) and _is_name(other[2][0])
        if len(sides) == 2 and same_name and sides[0] == other[2][0]:
            return sides[1]
        if len(sides) > 2 and _chain_agrees(sides):
            return ("rel", ("=",), (sides[0], sides[-1]))
        return node
    constants = [side for side in sides if not symbols(side) and side[0] not in STRUCTURES]
    if other[0] not in STRUCTURES and len(constants) == len(sides):
        return sides[-1] if _chain_agrees(sides) else node
    named = sides[0][1] if sides[0][0] == "mul" else sides[0]
    if symbols(named) & symbols(sides[1:]):
        return node  # x = x + 0 defines nothing
    if _is_name(sides[0]) and (len(sides) == 2 or _chain_agrees(sides[1:])):
        return sides[-1]
    if len(sides) == 2 and _is_name(sides[1]) and not symbols(sides[0]):
        return sides[0]
    return node


def _chain_agrees(sides: Sequence[Node]) -> bool:
    """Whether all constant sides of `a = b = c` have one value."""
    constants = [side for side in sides if not symbols(side) and side[0] not in STRUCTURES]
    return all(_same_constant(constants[-1], side) for side in constants[:-1])


def _is_name(node: Node) -> bool:
    """Whether a left side only names what is on the right: x, f(x), AB, x + y, (m, n); not 2x or x^2."""
    if node[0] == "sym":
        return True
    if node[0] == "tuple":
        return all(part[0] == "sym" for part in node[3])
    if node[0] == "mul" and node[1] == ("sym", "P"):
        return True
    if node[0] == "fn":
        return node[1] in ("sin", "cos", "tan", "cot", "sec", "csc") and _is_name(node[2])
    if node[0] in ("mul", "add"):
        return _is_name(node[1]) and (
            _is_name(node[2]) or (node[0] == "mul" and node[1][0] == "sym" and node[2][0] == "num")
        )
    if node[0] == "pow":
        return node[1][0] == "sym" and node[2] == ("neg", ("num", Fraction(1)))
    if node[0] in ("abs", "const"):
        return (node[0] == "const" and node[1] in ("e", "i")) or (node[0] == "abs" and _is_name(node[1]))
    return False


# --- structures ---


def _tuples(gold: Node, pred: Node) -> bool:
    if len(gold[3]) != len(pred[3]):
        return False
    if (gold[1], gold[2]) != (pred[1], pred[2]) and len(gold[3]) <= 2:
        return False  # (1,2) and [1,2] are two intervals; (1,2,3) and [1,2,3] are one triple
    return all(equal(g, p) for g, p in zip(gold[3], pred[3], strict=True))


def _matrices(gold: Node, pred: Node) -> bool:
    left, right = _matrix_rows(gold), _matrix_rows(pred)
    if left is None or right is None or len(left) != len(right):
        return False
    return all(
        len(g) == len(p) and all(equal(a, b) for a, b in zip(g, p, strict=True))
        for g, p in zip(left, right, strict=True)
    )


def _matrix_rows(node: Node) -> Sequence[Sequence[Node]] | None:
    """The rows of a matrix, of a scalar times a matrix, or of a list of lists."""
    if node[0] == "matrix":
        return node[1]
    if node[0] in ("mul", "div", "neg"):
        if node[0] == "neg":
            rows = _matrix_rows(node[1])
            return None if rows is None else [[("neg", x) for x in row] for row in rows]
        for matrix, scalar in ((node[1], node[2]), (node[2], node[1])):
            rows = _matrix_rows(matrix)
            if (
                rows is not None
                and not contains(scalar, "matrix")
                and not (node[0] == "div" and matrix is node[2])
            ):
                return [[(node[0], x, scalar) for x in row] for row in rows]
    if node[0] == "tuple" and node[1] == "[" and all(x[0] == "tuple" and x[1] == "[" for x in node[3]):
        return [x[3] for x in node[3]]
    return None


def _bases(gold: Node, pred: Node) -> bool:
    if gold[0] == pred[0] == "base":
        return bool(gold[1:] == pred[1:])
    based, other = (gold, pred) if gold[0] == "base" else (pred, gold)
    return other[0] == "num" and other[1].denominator == 1 and str(other[1]) == based[1].lstrip("0")


def _ratios(gold: Node, pred: Node) -> bool:
    if gold[0] == pred[0] == "ratio":
        if len(gold[1]) != len(pred[1]):
            return False
        if all(same_value(g, p) for g, p in zip(gold[1], pred[1], strict=True)):
            return True
        if _like_a_clock(gold) or _like_a_clock(pred):
            return False
        first = gold[1][0], pred[1][0]
        return (
            all(
                same_value(("mul", g, first[1]), ("mul", p, first[0]))
                for g, p in zip(gold[1], pred[1], strict=True)
            )
            and not _zero(first[0])
            and not _zero(first[1])
        )
    ratio, other = (gold, pred) if gold[0] == "ratio" else (pred, gold)
    if len(ratio[1]) != 2 or other[0] in STRUCTURES or (_like_a_clock(ratio)):
        return False
    return same_value(("div", *ratio[1]), other)


def _is_application(node: Node) -> bool:
    """Whether a node may be f(x): two symbols side by side."""
    return node[0] == "mul" and node[1][0] == "sym" and node[2][0] == "sym"


def _zero(node: Node) -> bool:
    try:
        return exact(node) == 0
    except (Undefined, TooBig):
        return False


def _like_a_clock(ratio: Node) -> bool:
    """Whether 12:00 or 6:30 may be a time, which must not be reduced."""
    values = [part[1] if part[0] == "num" else None for part in ratio[1]]
    return (
        len(values) in (2, 3)
        and all(v is not None and v < 60 for v in values)
        and values[1] is not None
        and (values[1] % 5 == 0 and (values[1] == 0 or values[1] >= 10))
    )


def _equations(gold: Node, pred: Node) -> bool:
    """Equations and inequalities whose difference of sides is the same up to a constant factor."""
    if gold[0] != "rel" or pred[0] != "rel" or len(gold[1]) != 1 or len(pred[1]) != 1:
        return (
            gold[0] == pred[0] == "rel"
            and gold[1] == pred[1]
            and all(equal(g, p) for g, p in zip(gold[2], pred[2], strict=True))
        )
    if any(side[0] in STRUCTURES for side in (*gold[2], *pred[2])):
        if gold[1] != pred[1]:
            return False
        return all(equal(g, p) for g, p in zip(gold[2], pred[2], strict=True))
    if gold[1] == pred[1] == ("=",) and {_is_application(gold[2][0]), _is_application(pred[2][0])} == {
        True,
        False,
    }:
        plain = pred[2][0] if _is_application(gold[2][0]) else gold[2][0]
        if plain == ("sym", "y"):  # f(x) = ... and y = ... name one function
            return same_value(gold[2][1], pred[2][1])
    gold_operator, left = _to_zero(gold)
    pred_operator, right = _to_zero(pred)
    if gold_operator != pred_operator:
        return False
    names = sorted(symbols(left) | symbols(right))
    if not names or symbols(left) != symbols(right):
        return False
    factor = _constant_factor(left, right, names)
    if factor is None or not _is_real(factor):
        return False
    return gold_operator in ("=", "!=") or mp.re(factor) > 0


def _to_zero(relation: Node) -> tuple[str, Node]:
    """A relation as `difference OP 0` with OP among =, !=, <, <=."""
    (operator,), (left, right) = relation[1], relation[2]
    if operator in (">", ">="):
        return ("<" if operator == ">" else "<="), ("add", right, ("neg", left))
    return operator, ("add", left, ("neg", right))


def _constant_factor(left: Node, right: Node, names: list[str]) -> Any:
    draw = random.Random(f"{left!r}{right!r}"[:2000])
    factor, agreed = None, 0
    for attempt in range(24):
        env = {name: _sample(draw, attempt, False, k) for k, name in enumerate(names)}
        try:
            a, b = number(left, env), number(right, env)
        except (Undefined, NotReal):
            continue
        except TooBig:
            return None
        if abs(a) < mp.mpf(10) ** -30 or abs(b) < mp.mpf(10) ** -30:
            return None
        if factor is None:
            factor = a / b
        elif not _close(factor, a / b):
            return None
        agreed += 1
        if agreed >= 7:
            return factor
    return factor if agreed >= 4 else None


# --- regions of the real line ---


def _regions(gold: Node, pred: Node) -> bool:
    left, right = region(gold), region(pred)
    if left is None or right is None:
        return False
    gold_variable, gold_pieces = left
    pred_variable, pred_pieces = right
    if gold_variable and pred_variable and gold_variable != pred_variable:
        return False
    if len(gold_pieces) != len(pred_pieces):
        return False
    return all(
        g[2:4] == p[2:4] and _same_end(g[4], p[4]) and _same_end(g[5], p[5])
        for g, p in zip(gold_pieces, pred_pieces, strict=True)
    )


def _same_end(gold: Node, pred: Node) -> bool:
    if contains(gold, "const") and (gold in (INF, MINUS_INF) or pred in (INF, MINUS_INF)):
        return gold == pred
    return same_value(gold, pred)


def region(node: Node) -> tuple[str, list[Piece]] | None:
    """The set of reals that an interval, inequality, union or set-builder stands for, and its variable's
    name.
    """
    try:
        found = _region(node)
    except (Undefined, TooBig, NotReal, KeyError):
        return None
    if found is None:
        return None
    name, pieces = found
    return name, _merged(pieces)


def _region(node: Node) -> tuple[str, list[Piece]] | None:
    kind = node[0]
    if kind == "reals":
        return "", [_piece(MINUS_INF, INF, False, False)]
    if kind == "empty":
        return "", []
    if kind == "tuple" and len(node[3]) == 2:
        return "", [_piece(node[3][0], node[3][1], node[1] == "[", node[2] == "]")]
    if kind == "set":
        return "", [_piece(item, item, True, True) for item in node[1]]
    if kind == "rel":
        return _relation_region(node)
    if kind == "builder":
        condition = _region(node[2])
        return None if condition is None else ("", condition[1])
    if kind in ("union", "or_", "minus", "and_", "inter"):
        return _combined(node)
    return None


def _combined(node: Node) -> tuple[str, list[Piece]] | None:
    parts = [_region(part) for part in (node[1] if node[0] in ("or_", "and_") else node[1:])]
    known = [part for part in parts if part is not None]
    if len(known) != len(parts):
        return None
    names = {name for name, _ in known if name}
    if len(names) > 1:
        return None
    name = names.pop() if names else ""
    pieces = known[0][1]
    for _, others in known[1:]:
        if node[0] in ("union", "or_"):
            pieces = [*pieces, *others]
        elif node[0] == "minus":
            pieces = _intersection(pieces, _complement(_merged(others)))
        else:
            pieces = _intersection(pieces, others)
    return name, pieces


def _relation_region(node: Node) -> tuple[str, list[Piece]] | None:
    operators, sides = node[1], node[2]
    if operators == ("in",) and sides[0][0] == "sym":
        inner = _region(sides[1])
        return None if inner is None else (sides[0][1], inner[1])
    names = symbols(sides)
    if len(names) != 1 or not set(operators) <= {"<", ">", "<=", ">=", "!=", "="}:
        return None
    (name,) = names
    pieces = [_piece(MINUS_INF, INF, False, False)]
    for operator, left, right in zip(operators, sides, sides[1:], strict=False):
        half = _half_line(operator, left, right, name)
        if half is None:
            return None
        pieces = _intersection(pieces, half)
    return name, pieces


def _half_line(operator: str, left: Node, right: Node, name: str) -> list[Piece] | None:
    """The region of an inequality in one variable that is linear, or compares an absolute value with a
    constant.
    """
    flipped = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}.get(operator, operator)
    if right[0] == "abs" and not symbols(left):
        return _half_line(flipped, right, left, name)
    if left[0] == "abs" and not symbols(right):
        above = _half_line(operator, left[1], right, name)
        below = _half_line(flipped, left[1], ("neg", right), name)
        if above is None or below is None or number(right, {}) < 0:
            return None
        return _intersection(above, below) if operator in ("<", "<=", "!=") else _merged([*above, *below])
    if left == ("sym", name) and not symbols(right):
        bound, rising = right, True
    elif right == ("sym", name) and not symbols(left):
        bound, rising = left, False
    else:
        difference: Node = ("add", left, ("neg", right))
        at = [exact(substitute(difference, name, ("num", Fraction(k)))) for k in (0, 1, 5)]
        if at[0] is None or at[1] is None or at[2] is None:
            return None
        slope = at[1] - at[0]
        if slope == 0 or at[2] != at[0] + 5 * slope:
            return None
        bound, rising = ("num", -at[0] / slope), slope > 0
    if operator == "=":
        return [_piece(bound, bound, True, True)]
    if operator == "!=":
        return [_piece(MINUS_INF, bound, False, False), _piece(bound, INF, False, False)]
    closed = "=" in operator
    if ("<" in operator) == rising:
        return [_piece(MINUS_INF, bound, False, closed)]
    return [_piece(bound, INF, closed, False)]


def _piece(low: Node, high: Node, low_closed: bool, high_closed: bool) -> Piece:
    return _end(low), _end(high), low_closed, high_closed, _plain_end(low), _plain_end(high)


def _plain_end(node: Node) -> Node:
    value = _end(node)
    return (INF if value > 0 else MINUS_INF) if mp.isinf(value) else node


def _end(node: Node) -> Any:
    value = number(node, {})
    if not _is_real(value):
        raise NotReal
    return mp.re(value)


def _merged(pieces: list[Piece]) -> list[Piece]:
    """Sorted, empty pieces dropped, touching ones joined."""
    kept = sorted(
        (p for p in pieces if p[0] < p[1] or (p[0] == p[1] and p[2] and p[3])), key=lambda p: (p[0], not p[2])
    )
    merged: list[Piece] = []
    for piece in kept:
        if merged:
            last = merged[-1]
            if piece[0] < last[1] or (piece[0] == last[1] and (piece[2] or last[3])):
                further = piece if piece[1] > last[1] or (piece[1] == last[1] and piece[3]) else last
                merged[-1] = (last[0], further[1], last[2], further[3], last[4], further[5])
                continue
        merged.append(piece)
    return merged


def _intersection(left: list[Piece], right: list[Piece]) -> list[Piece]:
    found = []
    for a in left:
        for b in right:
            low = max((a, b), key=lambda p: (p[0], not p[2]))
            high = min((a, b), key=lambda p: (p[1], p[3]))
            found.append((low[0], high[1], low[2], high[3], low[4], high[5]))
    return _merged(found)


def _complement(pieces: list[Piece]) -> list[Piece]:
    found: list[Piece] = []
    low, closed, node = -mp.inf, False, MINUS_INF
    for piece in pieces:
        found.append((low, piece[0], closed, not piece[2], node, piece[4]))
        low, closed, node = piece[1], not piece[3], piece[5]
    found.append((low, mp.inf, closed, False, node, INF))
    return _merged(found)
