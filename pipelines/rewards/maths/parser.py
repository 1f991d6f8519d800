r"""A recursive-descent parser for the answers of mathematics problems, LaTeX or plain text.

Nodes are tuples whose first entry is their kind.
Values: num, sym, const (pi, e, i, inf), add, mul, div, neg, pow, root, fn, log, fact, abs, floor, ceil,
binom, many (gcd, lcm, max, min), deg, pct, sum, prod, base, dots, pm.
Structures: tuple (left bracket, right bracket, items), set, list, matrix, rel, union, minus, inter, empty,
reals, ratio, builder, and_, or_.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

from pipelines.rewards.maths.notation import Token, Unreadable, clean, tokenize
from pipelines.rewards.maths.words import (
    ORDINALS,
    SCALES,
    SINGLE_LETTER_UNITS,
    UNITS,
    is_harmless_before,
    is_unit,
)

Node = tuple[Any, ...]
MAX_DEPTH = 60

FUNCTIONS = frozenset(
    """sin cos tan cot sec csc asin acos atan acot sinh cosh tanh coth exp ln asinh acosh atanh
    arcsinh""".split()  # noqa: SIM905
)
MANY = frozenset({"gcd", "lcm", "max", "min"})
GREEK = frozenset(
    """alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau upsilon phi
    chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega ell hbar Re Im
    aleph""".split()  # noqa: SIM905
)
PLAIN_NAMES = {
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "infinity": "infty",
    "inf": "infty",
    "oo": "infty",
    "infty": "infty",
    "pi": "pi",
    "Pi": "pi",
    "sqrt": "sqrt",
    "cbrt": "cbrt",
    "log": "log",
    "ln": "ln",
    "or": "or",
    "and": "and",
    "exp": "exp",
    "abs": "abs",
    "union": "cup",
    "U": "cup",
    "binom": "binom",
    "floor": "floor",
    "ceil": "ceil",
    "emptyset": "emptyset",
    "in": "in",
    "factorial": "factorial",
    "frac": "frac",
} | {n: n for n in FUNCTIONS | MANY | {"theta", "alpha", "beta", "gamma", "lambda", "phi", "omega", "sigma"}}
RELATIONS = {
    "=": "=",
    "<": "<",
    ">": ">",
    r"\le": "<=",
    r"\ge": ">=",
    r"\neq": "!=",
    r"\in": "in",
    r"\approx": "~",
    r"\equiv": "=",
    r"\sim": "~",
    r"\subset": "sub",
    r"\subseteq": "sub",
}
_SKIP = {
    r"\angle",
    r"\triangle",
    r"\measuredangle",
    r"\square",
    r"\vec",
    r"\hat",
    r"\overrightarrow",
    r"\widehat",
    r"\overline",
    r"\bar",
    r"\tilde",
    r"\mathcal",
    r"\mathscr",
    r"\mathfrak",
    r"\therefore",
    r"\#",
}
_ALGEBRA_RUN = re.compile(r"[abcd]+|[xyzwuvt]+|[pqrs]+|[klmn]+|[A-Z]{2,4}|[abcxyzmnpqrstuvwhk]{1,5}")
ONE = ("num", Fraction(1))


def parse(text: str, foreign: frozenset[str] = frozenset(), grouping: bool = True) -> Node:
    """The tree of an answer; Unreadable where it is none.

    `foreign`: single letters that stand for a variable on the other side, hence are no unit here.
    """
    return Parser(text, foreign, grouping).answer()


class Parser:
    """One pass over one answer."""

    def __init__(self, text: str, foreign: frozenset[str], grouping: bool) -> None:
        cleaned = clean(text)
        self.foreign = foreign
        self.tokens = self._words(tokenize(cleaned, grouping))
        self.place = 0
        self.depth = 0
        self.bar_stops = False

    # --- words ---

    def _words(self, tokens: list[Token]) -> list[Token]:
        """Texts and runs of letters as names, functions, separators or units."""
        out: list[Token] = []
        for token in tokens:
            if token.kind == "text":
                out.extend(self._text(token, out))
            elif token.kind == "word":
                out.extend(self._word(token, out))
            else:
                out.append(token)
        return out

    def _text(self, token: Token, before: list[Token]) -> list[Token]:
        content = token.value.replace("\\ ", " ").strip()
        bare = content.strip(" ,.;:").casefold()
        if content in (",", ";"):
            return [Token("op", content)]
        if bare in ("and", "or", "&"):
            return [Token("cmd", r"\or" if bare == "or" else r"\and")]
        if bare == "to" and _ends_value(before):
            return [Token("op", ":")]
        if not content:
            return []
        if content in UNITS and len(content) > 1 and _ends_value(before):
            return [Token("unit", content, None, token.spaced)]
        if content in PLAIN_NAMES and content not in ("U", "in") and len(content) > 1:
            return [Token("cmd", "\\" + PLAIN_NAMES[content], None, token.spaced)]
        is_unit_letter = content in SINGLE_LETTER_UNITS and content not in self.foreign
        if re.fullmatch(r"[A-Za-z]", content) and not (
            _ends_value(before) and (is_unit_letter or token.value != content)
        ):
            return [Token("name", content, None, token.spaced)]
        if re.fullmatch(r"[-+\d\s.,/^()*\\%:]+", content) or content.startswith("\\"):
            return self._words(tokenize(clean(content))[:-1])
        parts = re.split(r"\s*(?:,|;|&|\band\b|\bor\b)\s*", content)
        if len(parts) > 1 and all(
            re.fullmatch(r"[A-Z]{1,4}|-?\d+(?:\.\d+)?(?:/\d+)?|", part) for part in parts
        ):
            spelled = re.sub(r"\band\b", ";", re.sub(r"\bor\b", r" \\or ", content))
            return self._words(tokenize(spelled.replace("&", ";"))[:-1])
        words = re.match(r"([-+]?[\d.,]*\d(?:/\d+)?)\s*([A-Za-z].*)", content)
        if words and is_unit(words.group(2)):
            return [*tokenize(words.group(1))[:-1], Token("unit", words.group(2))]
        return [Token("unit", content, None, token.spaced)]

    def _word(self, token: Token, before: list[Token]) -> list[Token]:
        word = token.value
        if word in PLAIN_NAMES and not (word == "U" and not _ends_bracket(before)) and word != "in":
            return [Token("cmd", "\\" + PLAIN_NAMES[word], None, token.spaced)]
        after_value = _ends_value(before)
        if word == "to" and after_value:
            return [Token("op", ":")]
        if after_value and word in ORDINALS and not token.spaced and before[-1].kind == "num":
            return [Token("unit", word)]
        if after_value and (
            before[-1].kind == "unit" or (before[-1].value == r"\circ" and word in ("C", "F"))
        ):
            return [Token("unit", word, None, token.spaced)]
        if (
            after_value
            and word in UNITS
            and not (len(word) == 1 and not self._single_letter_unit(token, before))
        ):
            return [Token("unit", word, None, token.spaced)]
        if after_value and (
            word.lower() in SCALES or (token.spaced and len(word) >= 3 and before[-1].kind == "num")
        ):
            return [Token("unit", word, None, token.spaced)]
        for name in ("arcsin", "arccos", "arctan", "sin", "cos", "tan", "log", "ln", "pi", "sqrt"):
            rest = word.removeprefix(name)
            if rest != word and 1 <= len(rest) <= 2:
                head = Token("cmd", "\\" + PLAIN_NAMES[name], None, token.spaced)
                return [head, *(Token("name", c) for c in rest)]
        if len(word) <= 2 or _ALGEBRA_RUN.fullmatch(word):
            return [Token("name", c, None, token.spaced and k == 0) for k, c in enumerate(word)]
        return [Token("longname", word, None, token.spaced)]

    def _single_letter_unit(self, token: Token, before: list[Token]) -> bool:
        return (
            token.spaced
            and token.value in SINGLE_LETTER_UNITS
            and token.value not in self.foreign
            and before[-1].kind == "num"
        )

    # --- tokens ---

    @property
    def next(self) -> Token:
        return self.tokens[self.place]

    def peek(self, offset: int) -> Token:
        return self.tokens[min(self.place + offset, len(self.tokens) - 1)]

    def take(self, *values: str) -> Token | None:
        """The next token, taken, where it is one of `values`."""
        token = self.next
        if token.value in values and token.kind in ("op", "cmd"):
            self.place += 1
            return token
        return None

    def need(self, value: str) -> None:
        if not self.take(value):
            raise Unreadable(f"{value!r} is missing before {self.next.value!r}")

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable("too deeply nested")

    # --- structure ---

    def answer(self) -> Node:
        """The whole text: one clause, or several that `,`, `;`, and, or part."""
        if self.next.kind == "end":
            raise Unreadable("empty")
        items, connectives = self.clauses()
        if self.next.kind != "end":
            raise Unreadable(f"{self.next.value!r} is left over")
        if len(items) == 1:
            return items[0]
        if all(item[0] == "rel" and "=" not in item[1] for item in items) or (
            "or" in connectives
            and any(item[0] == "rel" and item[1][0] in ("<", ">", "<=", ">=") for item in items)
        ):
            return ("or_" if "or" in connectives else "and_", tuple(items))
        return ("list", tuple(items))

    def clauses(self) -> tuple[list[Node], set[str]]:
        """Clauses up to a closing sign, and the words that part them."""
        items, connectives = [self.clause()], set()
        while True:
            separated = False
            while token := self.take(",", ";", r"\and", r"\or", r"\land", r"\lor", r"\\"):
                connectives.add(
                    "or" if token.value in (r"\or", r"\lor") else "and" if "a" in token.value else ","
                )
                separated = True
            if not separated or self.next.kind == "end" or self.next.value in (")", "]", r"\}", "}"):
                return items, connectives
            items.append(self.clause())

    def clause(self) -> Node:
        """One relation chain, ratio, set expression or value."""
        self.deeper()
        self.take(r"\approx", r"\sim", "=", r"\therefore", ":")
        sides, operators = [self.set_expression()], []
        while (spelled := self.next.value) in RELATIONS and self.next.kind in ("op", "cmd"):
            self.place += 1
            operators.append(RELATIONS[spelled])
            sides.append(self.set_expression())
        if self.next.value == ":" and not operators and not self.bar_stops:
            while self.take(":"):
                sides.append(self.expression())
            self.depth -= 1
            return ("ratio", tuple(sides))
        self.depth -= 1
        if not operators:
            return sides[0]
        return ("rel", tuple(operators), tuple(sides))

    def set_expression(self) -> Node:
        left = self.expression()
        while token := self.take(r"\cup", r"\setminus", r"\cap"):
            kind = {r"\cup": "union", r"\setminus": "minus", r"\cap": "inter"}[token.value]
            left = (kind, left, self.expression())
        return left

    # --- values ---

    def expression(self) -> Node:
        self.deeper()
        left: Node | None = None
        while self.next.kind == "unit" and is_harmless_before(self.next.value) and self.peek(1).kind != "end":
            self.place += 1
            self.take(":", "=")
        if self.next.kind == "unit" and self.peek(1).value == "=":
            self.place += 1
            self.depth -= 1
            return ("sym", "text:" + self.tokens[self.place - 1].value.strip().casefold())
        sign = self.take("+", "-", r"\pm", r"\mp")
        if sign and sign.value in (r"\pm", r"\mp"):
            left = ("pm", sign.value == r"\pm", None, self.term())
        elif sign:
            left = self.term()
            if sign.value == "-":
                left = ("pct", ("neg", left[1])) if left[0] == "pct" else ("neg", left)
        else:
            left = self.term()
        while token := self.take("+", "-", r"\pm", r"\mp"):
            right = self.term()
            if token.value in (r"\pm", r"\mp"):
                left = ("pm", token.value == r"\pm", left, right)
            else:
                left = ("add", left, ("neg", right) if token.value == "-" else right)
        self.depth -= 1
        return left

    def term(self) -> Node:
        left = self.signed_factor()
        while True:
            if self.take("*"):
                left = ("mul", left, self.signed_factor())
            elif self.take("/"):
                left = ("div", left, self.signed_factor())
            elif self.take(r"\bmod", r"\mod"):
                left = ("mod", left, self.signed_factor())
            elif self.take(r"\pmod"):
                self.factor()
            elif self.next.kind == "unit":
                left = self.unit(left)
            elif self.next.value == r"\frac" and self.peek(1).value == "{" and self.peek(2).kind == "unit":
                self.place += 1
                if not is_unit(self.raw_group() + " " + self.raw_group()):
                    raise Unreadable("a fraction of words")
            elif self.starts_factor():
                if self.next.kind == "num" and self.tokens[self.place - 1].kind == "num":
                    raise Unreadable("two numbers side by side")
                left = ("mul", left, self.factor())
            else:
                return left

    def signed_factor(self) -> Node:
        negative = False
        while token := self.take("-", "+"):
            negative ^= token.value == "-"
        factor = self.factor()
        return ("neg", factor) if negative else factor

    def starts_factor(self) -> bool:
        token = self.next
        if token.kind in ("num", "name", "longname"):
            return True
        if token.kind == "op":
            return token.value in ("(", "{", "[") or (
                token.value == "|" and not self.bar_stops and not self.in_bars
            )
        if token.kind == "cmd":
            return token.value not in RELATIONS and token.value not in (
                r"\cup",
                r"\cap",
                r"\setminus",
                r"\pm",
                r"\mp",
                r"\and",
                r"\or",
                r"\land",
                r"\lor",
                r"\}",
                r"\\",
                r"\bmod",
                r"\mod",
                r"\pmod",
                r"\%",
                r"\rangle",
                r"\rfloor",
                r"\rceil",
                r"\end",
                r"\over",
                r"\choose",
                r"\|",
            )
        return False

    in_bars = 0

    def unit(self, value: Node) -> Node:
        """Skip a unit after `value`: its words, powers and divisions."""
        scale = 1
        first = True
        while True:
            token = self.next
            if token.kind == "unit":
                words = token.value.strip()
                head = words.split()[0].lower() if words.split() else ""
                if first and head in SCALES:
                    scale = SCALES[head]
                    words = words[len(head) :].strip()
                if words and not is_unit(words):
                    raise Unreadable(f"{token.value!r} is no unit")
                self.place += 1
            elif not first and token.value == "^":
                self.place += 1
                self.take("-")
                self.atom()
            elif (
                not first
                and token.value in ("/", "*", "-")
                and self.peek(1).kind in ("unit", "name", "longname")
            ):
                self.place += 2
            elif (
                not first
                and token.kind in ("name", "longname")
                and self.tokens[self.place - 1].kind == "unit"
            ):
                self.place += 1
            else:
                break
            first = False
        return value if scale == 1 else ("mul", value, ("num", Fraction(scale)))

    def factor(self) -> Node:
        """An atom with its powers, factorials, degrees and percents."""
        self.deeper()
        start = self.place
        node = self.atom()
        node = self.mixed(node, start)
        while True:
            if self.next.value == "^" and self.next.kind == "op":
                self.place += 1
                node = self.power(node)
            elif self.take("!"):
                node = ("fact", node)
            elif self.take("%", r"\%"):
                node = ("pct", node)
            elif self.take("'"):
                node = ("sym", node[1] + "'") if node[0] == "sym" else node
            elif self.take(r"\circ"):
                node = ("deg", node)
            elif self.next.value == "_" and self.next.kind == "op":
                self.place += 1
                node = self.subscript(node, start)
            else:
                self.depth -= 1
                return node

    def power(self, base: Node) -> Node:
        if self.take(r"\circ"):
            return ("deg", base)
        if self.next.value == "{" and self.peek(1).value == r"\circ" and self.peek(2).value == "}":
            self.place += 3
            return ("deg", base)
        if self.next.value == "{" and self.peek(1).value in ORDINALS and self.peek(2).value == "}":
            self.place += 3
            return base
        if base[0] == "matrix" and self.transpose():
            return ("matrix", tuple(zip(*base[1], strict=True)))
        negative = bool(self.take("-"))
        exponent = self.atom(True)
        if self.next.value == "^" and self.next.kind == "op":
            self.place += 1
            exponent = self.power(exponent)
        return ("pow", base, ("neg", exponent) if negative else exponent)

    def transpose(self) -> bool:
        if self.next.value == "T":
            self.place += 1
            return True
        if self.next.value == "{" and self.peek(1).value == "T" and self.peek(2).value == "}":
            self.place += 3
            return True
        return False

    def mixed(self, node: Node, start: int) -> Node:
        r"""`3\frac{1}{2}` and `2 3/4` are sums where the parts are whole numbers and the fraction is below
        one.
        """
        if node[0] != "num" or self.place != start + 1 or not self.tokens[start].value.isdigit():
            return node
        token = self.next
        if token.value == r"\frac" or (token.value == "{" and self.peek(1).value == r"\frac"):
            place = self.place
            try:
                fraction = self.atom()
            except Unreadable:
                fraction = node
            if self.next.value not in ("^", "!") and _proper(fraction):
                return ("num", node[1] + fraction[1][1] / fraction[2][1])
            self.place = place
        elif (
            token.kind == "num"
            and token.spaced
            and token.value.isdigit()
            and self.peek(1).value == "/"
            and self.peek(2).kind == "num"
            and self.peek(2).value.isdigit()
        ):
            top, bottom = token.number, self.peek(2).number
            if top is not None and bottom is not None and 0 < top < bottom:
                self.place += 3
                return ("num", node[1] + top / bottom)
        return node

    def subscript(self, node: Node, start: int) -> Node:
        before = self.tokens[start : self.place - 1]
        text = self.raw_group()
        if node[0] == "sym":
            return ("sym", f"{node[1]}_{text}")
        if node[0] == "num" or node[0] == "base":
            words = {
                "two": "2",
                "three": "3",
                "four": "4",
                "five": "5",
                "six": "6",
                "seven": "7",
                "eight": "8",
                "nine": "9",
                "ten": "10",
                "twelve": "12",
                "sixteen": "16",
            }
            spelled = "".join(t.value for t in before if t.kind == "num" or t.kind == "name")
            digits = re.sub(
                r"\W", "", self.tokens[start].value if self.tokens[start].kind == "num" else spelled
            )
            return ("base", digits or str(node[1]), words.get(text, text))
        if node[0] == "const":
            return ("sym", f"{node[1]}_{text}")
        return node

    def raw_group(self) -> str:
        """The spelling of a subscript."""
        if not self.take("{"):
            token = self.next
            self.place += 1
            return token.value.strip("\\")
        spelled, depth = [], 1
        while depth:
            token = self.next
            if token.kind == "end":
                raise Unreadable("a subscript is not closed")
            self.place += 1
            depth += (token.value == "{") - (token.value == "}")
            spelled.append(token.value.strip("\\ ") if depth else "")
        return "".join(spelled)

    # --- atoms ---

    def atom(self, single_digit: bool = False) -> Node:
        token = self.next
        if token.kind == "num":
            self.place += 1
            assert token.number is not None
            return ("num", token.number)
        if token.kind == "name":
            self.place += 1
            if token.value in ("e", "i"):
                return ("const", token.value)
            return ("sym", token.value)
        if token.kind == "longname":
            self.place += 1
            return ("sym", token.value)
        if token.kind == "cmd":
            return self.command()
        if token.value in ("(", "["):
            return self.bracket()
        if token.value == "{":
            return self.group()
        if token.value == "|":
            return self.absolute()
        raise Unreadable(f"{token.value or 'the end'!r} where a value should stand")

    def group(self) -> Node:
        r"""`{...}`: a LaTeX group, or a set where it holds several items."""
        self.need("{")
        self.deeper()
        if self.take("}"):
            self.depth -= 1
            if self.starts_factor():
                return self.atom()
            return ("empty",)
        stops, self.bar_stops = self.bar_stops, False
        items, _ = self.clauses()
        if self.take(r"\over"):
            bottom, _ = self.clauses()
            items = [("div", items[0], bottom[0])]
        elif self.take(r"\choose"):
            bottom, _ = self.clauses()
            items = [("binom", items[0], bottom[0])]
        self.need("}")
        self.bar_stops = stops
        self.depth -= 1
        return items[0] if len(items) == 1 else ("set", tuple(items))

    def bracket(self) -> Node:
        left = self.next.value
        self.place += 1
        self.deeper()
        bars, self.in_bars = self.in_bars, 0
        items, _ = self.clauses()
        self.in_bars = bars
        right = self.next.value
        if right not in (")", "]"):
            raise Unreadable("a bracket is not closed")
        self.place += 1
        self.depth -= 1
        if len(items) == 1 and ((left == "(" and right == ")") or items[0][0] == "matrix"):
            return items[0]
        if len(items) == 1:
            if left == "[" and right == "]":
                return ("tuple", left, right, tuple(items))
            raise Unreadable("brackets do not match")
        return ("tuple", left, right, tuple(items))

    def absolute(self) -> Node:
        self.place += 1
        self.deeper()
        self.in_bars += 1
        inner = self.expression()
        self.in_bars -= 1
        self.need("|")
        self.depth -= 1
        return ("abs", inner)

    def braces(self) -> Node:
        r"""A set between `\{` and `\}`: items, or `x | condition`."""
        self.place += 1
        self.deeper()
        if self.take(r"\}"):
            self.depth -= 1
            return ("empty",)
        stops, self.bar_stops = self.bar_stops, True
        first = self.clause()
        self.bar_stops = stops
        if self.take("|", ":"):
            conditions, connectives = self.clauses()
            self.need(r"\}")
            self.depth -= 1
            if len(conditions) == 1:
                return ("builder", first, conditions[0])
            return ("builder", first, ("or_" if "or" in connectives else "and_", tuple(conditions)))
        items = [first]
        while self.take(",", ";", r"\and"):
            items.append(self.clause())
        self.need(r"\}")
        self.depth -= 1
        return ("set", tuple(items))

    def command(self) -> Node:
        name = self.next.value
        if name == r"\{":
            return self.braces()
        self.place += 1
        short = name[1:]
        if short == "frac":
            return ("div", self.argument(), self.argument())
        if short in ("sqrt", "cbrt"):
            return self.radical(3 if short == "cbrt" else None)
        if short in ("pi", "infty"):
            return ("const", "pi" if short == "pi" else "inf")
        if short in FUNCTIONS:
            return self.function(short)
        if short == "log" or short == "lg":
            return self.logarithm(short)
        if short in MANY:
            return ("many", short, self.bracketed_items())
        if short in ("binom",):
            if self.next.value == "(":
                top, bottom = self.bracketed_items()
                return ("binom", top, bottom)
            return ("binom", self.argument(), self.argument())
        if short in ("abs", "floor", "ceil", "factorial"):
            (inner,) = self.bracketed_items()
            return ("fact" if short == "factorial" else short, inner)
        if short in ("lfloor", "lceil"):
            inner = self.expression()
            self.need(r"\rfloor" if short == "lfloor" else r"\rceil")
            return ("floor" if short == "lfloor" else "ceil", inner)
        if short == "langle":
            items, _ = self.clauses()
            self.need(r"\rangle")
            return ("tuple", "(", ")", tuple(items))
        if short == "|":
            self.in_bars += 1
            inner = self.expression()
            self.in_bars -= 1
            self.need(r"\|")
            return ("fn", "norm", inner)
        if short in ("sum", "prod"):
            return self.series(short)
        if short == "begin":
            return self.environment()
        if short == "emptyset":
            return ("empty",)
        if short.startswith("set") and len(short) == 4:
            return ("reals",) if short == "setR" else ("sym", short)
        if short == "ldots":
            return ("dots",)
        if short in GREEK:
            return ("sym", short)
        if name in _SKIP:
            inner = self.atom()
            if short in ("hat", "bar", "tilde", "widehat"):
                return ("sym", f"{short}:{inner!r}"[:200])
            return inner
        raise Unreadable(f"{name} is not an answer's sign")

    def argument(self) -> Node:
        r"""One argument of \frac: a group, or one sign (`\frac12`)."""
        token = self.next
        if token.kind == "num" and len(token.value) > 1 and token.value.isdigit():
            first, rest = token.value[0], token.value[1:]
            self.tokens[self.place] = Token("num", rest, Fraction(int(rest)), False)
            return ("num", Fraction(int(first)))
        return self.atom()

    def radical(self, degree: int | None) -> Node:
        index: Node | None = ("num", Fraction(degree)) if degree else None
        if self.next.value == "[":
            self.place += 1
            index = self.expression()
            self.need("]")
        return ("root", index, self.atom())

    def function(self, name: str) -> Node:
        exponent: Node | None = None
        if self.next.value == "^" and self.next.kind == "op":
            self.place += 1
            negative = bool(self.take("-"))
            exponent = self.atom()
            exponent = ("neg", exponent) if negative else exponent
            if exponent == ("neg", ONE) and name in ("sin", "cos", "tan", "cot"):
                name, exponent = "a" + name, None
        argument = self.function_argument()
        if name in ("sin", "cos", "tan", "cot", "sec", "csc"):
            argument = _degrees_to_radians(argument)
        node: Node = ("fn", name.removeprefix("arc") if name != "arcsinh" else "asinh", argument)
        return node if exponent is None else ("pow", node, exponent)

    def function_argument(self) -> Node:
        if self.next.value in ("(", "[", "{") and self.next.kind == "op":
            return self.atom()
        node = self.signed_factor()
        while self.starts_factor() and not self._starts_function():
            if self.next.kind == "num" and self.tokens[self.place - 1].kind == "num":
                raise Unreadable("two numbers side by side")
            node = ("mul", node, self.factor())
        return node

    def _starts_function(self) -> bool:
        short = self.next.value[1:]
        return self.next.kind == "cmd" and (short in FUNCTIONS or short in ("log", "lg"))

    def logarithm(self, name: str) -> Node:
        base: Node | None = ("num", Fraction(10)) if name == "lg" else None
        if self.next.value == "_" and self.next.kind == "op":
            self.place += 1
            base = self.argument() if self.next.kind == "num" and not self.next.spaced else self.atom()
        exponent: Node | None = None
        if self.next.value == "^" and self.next.kind == "op":
            self.place += 1
            exponent = self.atom()
        node: Node = ("log", base, self.function_argument())
        return node if exponent is None else ("pow", node, exponent)

    def bracketed_items(self) -> tuple[Node, ...]:
        if self.next.value not in ("(", "{", r"\{"):
            raise Unreadable("a function needs its arguments in brackets")
        if self.next.value == r"\{":
            found = self.braces()
            return tuple(found[1]) if found[0] == "set" else ()
        right = ")" if self.next.value == "(" else "}"
        self.place += 1
        items, _ = self.clauses()
        self.need(right)
        return tuple(items)

    def series(self, kind: str) -> Node:
        self.need("_")
        self.need("{")
        index = self.atom()
        self.need("=")
        low = self.expression()
        self.need("}")
        self.need("^")
        negative = bool(self.take("-"))
        high = self.atom()
        body = self.term()
        if index[0] not in ("sym", "const"):
            raise Unreadable("a sum needs an index")
        return (kind, index[1], low, ("neg", high) if negative else high, body)

    def environment(self) -> Node:
        kind = self.raw_group()
        if kind in ("array", "darray"):
            self.raw_group()
        matrix = kind.rstrip("*") in (
            "pmatrix",
            "bmatrix",
            "matrix",
            "Bmatrix",
            "smallmatrix",
            "array",
            "psmallmatrix",
            "bsmallmatrix",
        )
        if not matrix:
            raise Unreadable(f"environment {kind}")
        rows: list[list[Node]] = [[]]
        while True:
            if self.take(r"\end"):
                self.raw_group()
                break
            if self.take(r"\\"):
                rows.append([])
            elif self.take("&"):
                continue
            else:
                rows[-1].append(self.clause())
        rows = [row for row in rows if row]
        if not rows or len({len(row) for row in rows}) != 1:
            raise Unreadable("the rows of a matrix differ in length")
        return ("matrix", tuple(tuple(row) for row in rows))


def _ends_value(tokens: list[Token]) -> bool:
    return bool(tokens) and (
        tokens[-1].kind in ("num", "unit", "name")
        or tokens[-1].value in (")", "}", "]", r"\circ", "%", r"\%", "^", r"\pi")
    )


def _ends_bracket(tokens: list[Token]) -> bool:
    return bool(tokens) and tokens[-1].value in (")", "]", r"\}")


def _proper(node: Node) -> bool:
    """Whether a node is a fraction of whole numbers between 0 and 1."""
    if node[0] != "div" or node[1][0] != "num" or node[2][0] != "num":
        return False
    top, bottom = node[1][1], node[2][1]
    return bool(top.denominator == bottom.denominator == 1 and 0 < top < bottom)


def _degrees_to_radians(node: Node) -> Node:
    if not _contains(node, "deg"):
        return node
    return ("div", ("mul", node, ("const", "pi")), ("num", Fraction(180)))


def _contains(node: Any, kind: str) -> bool:
    return isinstance(node, tuple) and (
        (bool(node) and node[0] == kind) or any(_contains(part, kind) for part in node[1:])
    )
