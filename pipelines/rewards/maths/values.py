"""The value of a parsed answer: exactly where it is rational, else to 50 digits, within fixed bounds of
work.
"""

# mypy: disable-error-code="no-any-return"
# (a node is a tuple whose entries depend on its first one: the kind is checked, not the type)

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import mpmath  # type: ignore[import-untyped]

from pipelines.rewards.maths.parser import Node

MAX_BITS = 200_000
MAX_TERMS = 3_000
MAX_FACTORIAL = 5_000
DIGITS = 50

mp = mpmath.mp.clone()
mp.dps = DIGITS


class Undefined(ValueError):
    """The expression has no value: a division by zero, an unknown operation."""


class TooBig(ValueError):
    """The value needs more work than one check is allowed."""


class NotReal(ValueError):
    """Over the reals this has no value: a logarithm or an even root of a negative number."""


def exact(node: Node) -> Fraction | None:
    """The rational value of `node`, or None where it has none that can be had exactly. Undefined, TooBig."""
    kind = node[0]
    if kind == "num":
        return node[1]
    if kind == "neg":
        value = exact(node[1])
        return None if value is None else -value
    if kind in ("add", "mul", "div"):
        left, right = exact(node[1]), exact(node[2])
        if kind == "div" and right == 0:
            raise Undefined("division by zero")
        if left is None or right is None:
            return None
        if kind == "add":
            return _bounded(left + right)
        return _bounded(left * right if kind == "mul" else left / right)
    if kind == "pow":
        return _exact_power(node)
    if kind == "root":
        return _exact_root(node)
    if kind in ("fact", "abs", "floor", "ceil", "deg", "pct"):
        value = exact(node[1])
        if value is None:
            return None
        if kind == "fact":
            return Fraction(math.factorial(_natural(value, MAX_FACTORIAL)))
        if kind == "abs":
            return abs(value)
        if kind == "pct":
            return value / 100
        return (
            value if kind == "deg" else Fraction(math.floor(value) if kind == "floor" else math.ceil(value))
        )
    if kind == "binom":
        top, bottom = exact(node[1]), exact(node[2])
        if top is None or bottom is None:
            return None
        return Fraction(math.comb(_natural(top, 100_000), _natural(bottom, 2_000)))
    if kind == "mod":
        left, right = exact(node[1]), exact(node[2])
        if not right or left is None:
            return None
        return left % right
    if kind == "many":
        values = [exact(item) for item in node[2]]
        known = [v for v in values if v is not None]
        if len(known) != len(values) or not known:
            return None
        if node[1] in ("max", "min"):
            return max(known) if node[1] == "max" else min(known)
        whole = [int(v) for v in known if v.denominator == 1]
        if len(whole) != len(known):
            raise Undefined("gcd of a fraction")
        return Fraction(math.gcd(*whole) if node[1] == "gcd" else math.lcm(*whole))
    if kind in ("sum", "prod"):
        return _exact_series(node)
    return None


def _bounded(value: Fraction) -> Fraction:
    if value.numerator.bit_length() + value.denominator.bit_length() > MAX_BITS:
        raise TooBig
    return value


def _natural(value: Fraction, most: int) -> int:
    if value.denominator != 1 or value < 0:
        raise Undefined("not a natural number")
    if value > most:
        raise TooBig
    return int(value)


def _exact_power(node: Node) -> Fraction | None:
    base, exponent = exact(node[1]), exact(node[2])
    if base is None or exponent is None:
        return None
    if exponent.denominator != 1:
        root = _root_of(base, exponent.denominator)
        if root is None:
            return None
        base, exponent = root, Fraction(exponent.numerator)
    if base in (0, 1, -1):
        if base == 0 and exponent <= 0:
            raise Undefined("0 to the power 0, or less")
        return base if base != -1 else Fraction(1 if exponent % 2 == 0 else -1)
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if abs(exponent) * bits > MAX_BITS:
        raise TooBig
    return base ** int(exponent)


def _exact_root(node: Node) -> Fraction | None:
    degree = Fraction(2) if node[1] is None else exact(node[1])
    value = exact(node[2])
    if value is None or degree is None or degree.denominator != 1 or not 1 <= degree <= 1000:
        return None
    return _root_of(value, int(degree))


def _root_of(value: Fraction, degree: int) -> Fraction | None:
    """The exact root, real for odd degrees; None where it is irrational or not real."""
    if value < 0:
        if degree % 2 == 0:
            return None
        root = _root_of(-value, degree)
        return None if root is None else -root
    top, bottom = _int_root(value.numerator, degree), _int_root(value.denominator, degree)
    return None if top is None or bottom is None else Fraction(top, bottom)


def _int_root(value: int, degree: int) -> int | None:
    if value in (0, 1):
        return value
    if degree > 64:
        return None
    if degree == 2:
        root = math.isqrt(value)
    else:
        if value.bit_length() > 5000:
            return None
        low, high = 0, 1 << (value.bit_length() // degree + 1)
        while low < high:
            middle = (low + high + 1) // 2
            if middle**degree <= value:
                low = middle
            else:
                high = middle - 1
        root = low
    return root if root**degree == value else None


def _exact_series(node: Node) -> Fraction | None:
    _, index, low_node, high_node, body = node
    low, high = exact(low_node), exact(high_node)
    if low is None or high is None or low.denominator != 1 or high.denominator != 1:
        return None
    if high - low > MAX_TERMS:
        raise TooBig
    total = Fraction(0 if node[0] == "sum" else 1)
    for k in range(int(low), int(high) + 1):
        value = exact(substitute(body, index, ("num", Fraction(k))))
        if value is None:
            return None
        total = _bounded(total + value if node[0] == "sum" else total * value)
    return total


def substitute(node: Any, name: str, value: Node) -> Any:
    """`node` with the symbol (or constant letter) `name` replaced."""
    if not isinstance(node, tuple):
        return node
    if node in (("sym", name), ("const", name)):
        return value
    return tuple(substitute(part, name, value) if isinstance(part, tuple) else part for part in node)


def symbols(node: Any) -> frozenset[str]:
    """The names of the variables in `node`."""
    return frozenset(_symbols(node))


def _symbols(node: Any) -> Iterator[str]:
    if not isinstance(node, tuple):
        return
    if len(node) == 2 and node[0] == "sym":
        yield node[1]
        return
    bound = node[1] if node and node[0] in ("sum", "prod") else None
    for part in node:
        for name in _symbols(part):
            if name != bound:
                yield name


def contains(node: Any, *kinds: str) -> bool:
    """Whether a node of one of `kinds` is in the tree."""
    return (
        isinstance(node, tuple)
        and bool(node)
        and ((isinstance(node[0], str) and node[0] in kinds) or any(contains(part, *kinds) for part in node))
    )


def number(node: Node, env: dict[str, Any], natural_log: bool = True) -> Any:
    """`node` as an mpmath number with the variables of `env`. Undefined, TooBig, NotReal."""
    try:
        value = _Evaluation(env, natural_log).value(node)
    except (ZeroDivisionError, ValueError, TypeError, OverflowError, mpmath.libmp.NoConvergence) as error:
        if isinstance(error, Undefined | TooBig | NotReal):
            raise
        raise Undefined(str(error)) from None
    if mp.isnan(value):
        raise Undefined("not a number")
    return value


class _Evaluation:
    def __init__(self, env: dict[str, Any], natural_log: bool) -> None:
        self.env = env
        self.natural_log = natural_log
        self.steps = 0

    def value(self, node: Node) -> Any:
        self.steps += 1
        if self.steps > 30_000:
            raise TooBig
        method = getattr(self, "_" + node[0], None)
        if method is None:
            raise Undefined(f"{node[0]} is no number")
        value = method(node)
        return value.real if isinstance(value, mp.mpc) and value.imag == 0 else value

    def _num(self, node: Node) -> Any:
        value = node[1]
        return mp.mpf(value.numerator) / value.denominator

    def _sym(self, node: Node) -> Any:
        return self.env[node[1]]

    def _const(self, node: Node) -> Any:
        if node[1] in self.env:
            return self.env[node[1]]
        return {"pi": +mp.pi, "e": +mp.e, "i": mp.mpc(0, 1), "inf": mp.inf}[node[1]]

    def _add(self, node: Node) -> Any:
        return self.value(node[1]) + self.value(node[2])

    def _mul(self, node: Node) -> Any:
        return self.value(node[1]) * self.value(node[2])

    def _div(self, node: Node) -> Any:
        bottom = self.value(node[2])
        if bottom == 0:
            raise Undefined("division by zero")
        return self.value(node[1]) / bottom

    def _mod(self, node: Node) -> Any:
        return self.value(node[1]) % self.value(node[2])

    def _neg(self, node: Node) -> Any:
        return -self.value(node[1])

    def _pct(self, node: Node) -> Any:
        return self.value(node[1]) / 100

    def _deg(self, node: Node) -> Any:
        return self.value(node[1])

    def _abs(self, node: Node) -> Any:
        return abs(self.value(node[1]))

    def _floor(self, node: Node) -> Any:
        return mp.floor(self.value(node[1]))

    def _ceil(self, node: Node) -> Any:
        return mp.ceil(self.value(node[1]))

    def _pow(self, node: Node) -> Any:
        base = self.value(node[1])
        exponent = None if node[2][0] == "num" and node[2][1].denominator == 1 else _small_exact(node[2])
        if (
            exponent is not None
            and exponent.denominator % 2 == 1
            and exponent.denominator > 1
            and _real(base)
            and base < 0
        ):
            magnitude = mp.power(-base, mp.mpf(exponent.numerator) / exponent.denominator)
            return magnitude if exponent.numerator % 2 == 0 else -magnitude
        power = self.value(node[2])
        if base == 0:
            if _real(power) and power > 0:
                return mp.mpf(0)
            raise Undefined("0 to the power 0, or less")
        if not mp.isinf(base) and not mp.isinf(power):
            size = abs(power) * (abs(mp.log(abs(base), 2)) + 5)
            if size > MAX_BITS:
                raise TooBig
        if exponent is not None and exponent.denominator % 2 == 0 and _real(base) and base < 0 and self.env:
            raise NotReal
        if _real(power) and power == int(power) and abs(power) < 10_000:
            return base ** int(power)
        return mp.power(base, power)

    def _root(self, node: Node) -> Any:
        value = self.value(node[2])
        degree = Fraction(2) if node[1] is None else _small_exact(node[1])
        if degree is None:
            return mp.power(value, 1 / self.value(node[1]))
        if degree == 0:
            raise Undefined("root of degree 0")
        if _real(value) and value < 0:
            if degree.denominator == 1 and degree % 2 == 1:
                return -mp.power(-value, 1 / mp.mpf(int(degree)))
            if self.env:
                raise NotReal
        if degree == 2:
            return mp.sqrt(value)
        if value == 0:
            return mp.mpf(0)
        return mp.power(value, mp.mpf(degree.denominator) / degree.numerator)

    def _log(self, node: Node) -> Any:
        value = self._positive(node[2])
        if node[1] is None:
            return mp.log(value) if self.natural_log else mp.log10(value)
        base = self._positive(node[1])
        if base == 1:
            raise Undefined("logarithm to the base 1")
        return mp.log(value) / mp.log(base)

    def _positive(self, node: Node) -> Any:
        value = self.value(node)
        if value == 0:
            raise Undefined("logarithm of 0")
        if _real(value) and value < 0 and self.env:
            raise NotReal
        return value

    def _fn(self, node: Node) -> Any:
        name = node[1]
        if name == "ln":
            return mp.log(self._positive(node[2]))
        value = self.value(node[2])
        if name == "exp":
            if abs(value) > 100_000:
                raise TooBig
            return mp.exp(value)
        if name == "norm":
            return abs(value)
        if abs(value) > mp.mpf(10) ** 40:
            raise TooBig
        if name in ("asin", "acos") and _real(value) and abs(value) > 1 and self.env:
            raise NotReal
        if name in ("sinh", "cosh", "tanh", "coth") and abs(value) > 10_000:
            raise TooBig
        if name in ("tan", "sec"):
            if abs(mp.cos(value)) < mp.mpf(10) ** -40:
                raise Undefined("a pole")
        elif name in ("cot", "csc") and abs(mp.sin(value)) < mp.mpf(10) ** -40:
            raise Undefined("a pole")
        return getattr(mp, name)(value)

    def _fact(self, node: Node) -> Any:
        value = self.value(node[1])
        if not _real(value) or value != mp.floor(value) or value < 0:
            raise Undefined("factorial of no natural number")
        if value > MAX_FACTORIAL:
            raise TooBig
        return mp.factorial(value)

    def _binom(self, node: Node) -> Any:
        top, bottom = self.value(node[1]), self.value(node[2])
        if abs(top) > 100_000 or abs(bottom) > 100_000:
            raise TooBig
        return mp.binomial(top, bottom)

    def _many(self, node: Node) -> Any:
        values = [self.value(item) for item in node[2]]
        if not all(_real(v) for v in values) or not values:
            raise Undefined("no order")
        if node[1] in ("max", "min"):
            return max(values) if node[1] == "max" else min(values)
        if not all(v == int(v) for v in values):
            raise Undefined("gcd of a fraction")
        whole = [int(v) for v in values]
        return mp.mpf(math.gcd(*whole) if node[1] == "gcd" else math.lcm(*whole))

    def _sum(self, node: Node) -> Any:
        return self._series(node, mp.mpf(0))

    def _prod(self, node: Node) -> Any:
        return self._series(node, mp.mpf(1))

    def _series(self, node: Node, total: Any) -> Any:
        kind, index, low_node, high_node, body = node
        low, high = self.value(low_node), self.value(high_node)
        if not (_real(low) and _real(high)) or mp.isinf(high) or low != int(low) or high != int(high):
            raise Undefined("a series whose bounds are no whole numbers")
        if high - low > MAX_TERMS:
            raise TooBig
        outer = self.env
        for k in range(int(low), int(high) + 1):
            self.env = {**outer, index: mp.mpf(k)}
            value = self.value(body)
            total = total + value if kind == "sum" else total * value
        self.env = outer
        return total


def _real(value: Any) -> bool:
    return not isinstance(value, mp.mpc) or value.imag == 0


def _small_exact(node: Node) -> Fraction | None:
    try:
        value = exact(node)
    except (Undefined, TooBig):
        return None
    return value if value is not None and abs(value) < 10**6 and value.denominator < 1000 else None
