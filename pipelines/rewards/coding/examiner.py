"""The tests' side: the dataset's assertions run here, in a process that the candidate cannot reach.

The names that a test takes from the solution are proxies (`pipelines.rewards.coding.proxies`). A test passes
where its code runs to its end without an exception. Exit codes, printed text and files of the candidate
decide nothing.
"""

from __future__ import annotations

import ast
import builtins
import copy
import json
import os
import sys
import types

from pipelines.rewards.coding.proxies import TESTS_MODULE, CandidateGone, Link, is_proxy

TYPE_CHECKING = False
if TYPE_CHECKING:  # this module is part of every forked run: what it imports is paid for each time
    from typing import Any

SOLUTION_MODULES = ("solution", "candidate", "main", "submission", "your_module", "answer", "app")


def run(payload: dict[str, Any], descriptor: int) -> dict[str, Any]:
    """Run all tests of one completion; `{"passed": bool, "failed": index, "why": text}`."""
    entry = payload.get("entry_point") or ""
    root = entry.split(".")[0].split("(")[0].strip()
    link = Link(descriptor)
    loaded = link.connection.receive()
    if loaded.get("loaded") is not True:
        return {"passed": False, "failed": 0, "why": str(loaded.get("why", ""))[:300]}
    for index, test in enumerate(payload["tests"]):
        try:
            if "code" in test:
                _run_code(test["code"], entry, root, link)
            else:
                _run_call(test, entry, link)
            if link.gone:
                raise CandidateGone("the program ended during the test")
        except BaseException as error:
            return {"passed": False, "failed": index, "why": f"{type(error).__name__}: {_text(error)}"[:300]}
    return {"passed": True}


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:
        return ""


def _run_code(code: str, entry: str, root: str, link: Link) -> None:
    tree = ast.parse(code)
    names = _free_names(tree, root)
    namespace: dict[str, Any] = {"__name__": TESTS_MODULE, "__builtins__": builtins}
    module = types.ModuleType(TESTS_MODULE)
    module.__dict__.update(namespace)
    sys.modules[TESTS_MODULE] = module
    for name in SOLUTION_MODULES:
        sys.modules[name] = _SolutionModule(name, link)
    for name in names:
        try:
            module.__dict__[name] = _global(link, name)
        except NameError:
            continue
    if root and "candidate" in names and "candidate" not in module.__dict__:
        module.__dict__["candidate"] = _entry(link, entry)
    tree = _Holding(tree, {*names, "candidate"}).visit(tree)
    ast.fix_missing_locations(tree)
    module.__dict__.update(__hold__=link.hold, __release__=link.release, __original__=link.original)
    exec(compile(tree, "tests.py", "exec"), module.__dict__)
    _call_defined(tree, module, entry, link)


def _global(link: Link, name: str) -> Any:
    """What the solution calls `name`; functions and classes are asked for once."""
    if name in link.globals:
        return link.globals[name]
    found = link.ask("global", name)
    if is_proxy(found):
        link.globals[name] = found
    return found


def _entry(link: Link, entry: str) -> Any:
    """The callable that an entry point names: `f`, `Solution.method` or `Solution().method`."""
    root, *rest = entry.replace("()", "").split(".")
    found = _global(link, root)
    for name in rest:
        if is_proxy(found) and object.__getattribute__(found, "_kind") == "cls":
            found = found()
        found = getattr(found, name)
    return found


def _free_names(tree: ast.Module, root: str) -> list[str]:
    """The names that a test takes from the solution."""
    stored: set[str] = set()
    loaded: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (loaded.append if isinstance(node.ctx, ast.Load) else stored.add)(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            stored.add(node.name)
        elif isinstance(node, ast.arg):
            stored.add(node.arg)
        elif isinstance(node, ast.alias):
            stored.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            stored.add(node.name)
    wanted = dict.fromkeys(n for n in loaded if n == root or (n not in stored and not hasattr(builtins, n)))
    top = {t.id for s in tree.body if isinstance(s, ast.Assign) for t in s.targets if isinstance(t, ast.Name)}
    return [n for n in wanted if n not in top]


class _Holding(ast.NodeTransformer):
    """Puts every assert between `__hold__()` and `__release__()`, and keeps a reference value from being
    moved.

    `r = f(xs); assert r == sorted(xs)` computes its expected value from an argument that the candidate has
    had in its hands: `xs.clear(); return []` would be right. There, on the side without a result of the
    candidate, an argument inside a call stands for what it was before.
    """

    def __init__(self, tree: ast.Module, solution: set[str]) -> None:
        self.solution = solution
        self.results: set[str] = set()
        self.arguments: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value and self.asks(node.value):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                self.results |= {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
            if isinstance(node, ast.Call) and self.is_solution(node.func):
                for given in [*node.args, *[k.value for k in node.keywords]]:
                    self.arguments |= {n.id for n in ast.walk(given) if isinstance(n, ast.Name)}

    def is_solution(self, function: ast.AST) -> bool:
        while isinstance(function, ast.Attribute | ast.Call):
            function = function.value if isinstance(function, ast.Attribute) else function.func
        return isinstance(function, ast.Name) and function.id in self.solution

    def asks(self, node: ast.AST) -> bool:
        """Whether an expression holds a call to the solution."""
        return any(isinstance(n, ast.Call) and self.is_solution(n.func) for n in ast.walk(node))

    def visit_Assert(self, node: ast.Assert) -> Any:
        def call(name: str) -> ast.stmt:
            return ast.Expr(ast.Call(ast.Name(name, ast.Load()), [], []))

        node.test = _References(self).visit(node.test)
        return ast.Try(body=[call("__hold__"), node], handlers=[], orelse=[], finalbody=[call("__release__")])


class _References(ast.NodeTransformer):
    """Within one assert: arguments inside calls on a comparison's other side become
    `__original__(argument)`.
    """

    def __init__(self, holding: _Holding) -> None:
        self.holding = holding

    def from_candidate(self, node: ast.AST) -> bool:
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        return self.holding.asks(node) or bool(names & self.holding.results)

    def visit_Compare(self, node: ast.Compare) -> Any:
        sides = [node.left, *node.comparators]
        found = [self.from_candidate(side) for side in sides]
        if any(found) and not all(found):
            sides = [
                side if is_result else _Originals(self.holding).visit(side)
                for side, is_result in zip(sides, found, strict=True)
            ]
            node.left, node.comparators = sides[0], sides[1:]
        return node


class _Originals(ast.NodeTransformer):
    def __init__(self, holding: _Holding) -> None:
        self.holding = holding
        self.inside_call = 0

    def visit_Call(self, node: ast.Call) -> Any:
        self.inside_call += 1
        node.args = [self.visit(a) for a in node.args]
        for keyword in node.keywords:
            keyword.value = self.visit(keyword.value)
        self.inside_call -= 1
        return node

    def visit_Name(self, node: ast.Name) -> Any:
        if self.inside_call and isinstance(node.ctx, ast.Load) and node.id in self.holding.arguments:
            return ast.Call(ast.Name("__original__", ast.Load()), [node], [])
        return node


def _call_defined(tree: ast.Module, module: types.ModuleType, entry: str, link: Link) -> None:
    """Call what a test defines and does not call: HumanEval's `check`, pytest's `test_*`, unittest's
    cases.
    """
    called = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name not in called:
            count = len(node.args.args) - len(node.args.defaults)
            if node.name == "check" and count == 1:
                module.__dict__["check"](_entry(link, entry))
            elif node.name.startswith("test") and count == 0:
                module.__dict__[node.name]()
        elif isinstance(node, ast.ClassDef):
            _run_cases(module.__dict__.get(node.name))


def _run_cases(kind: Any) -> None:
    import unittest

    if not isinstance(kind, type):
        return
    if issubclass(kind, unittest.TestCase):
        result = unittest.TestResult()
        suite = unittest.defaultTestLoader.loadTestsFromTestCase(kind)
        suite.run(result)
        if not result.wasSuccessful() or not result.testsRun or result.skipped:
            problems = [*result.failures, *result.errors]
            raise AssertionError(problems[0][1][-200:] if problems else "no test ran")
    elif kind.__name__.startswith("Test"):
        for name in [n for n in vars(kind) if n.startswith("test")]:
            getattr(kind(), name)()


def _run_call(test: dict[str, Any], entry: str, link: Link) -> None:
    """A call with given arguments against a given return value, lists and tuples alike."""
    function = _entry(link, entry)
    result = function(*copy.deepcopy(test.get("args", [])), **copy.deepcopy(test.get("kwargs", {})))
    if not same(result, test["returns"]):
        raise AssertionError("another value was returned")


def same(found: Any, wanted: Any) -> bool:
    """Equality of plain data, where JSON has no tuples and no sets: those compare as lists, sorted for
    sets.
    """
    if isinstance(found, tuple):
        found = list(found)
    if isinstance(found, set | frozenset) and isinstance(wanted, list):
        try:
            return len(found) == len(wanted) and sorted(found) == sorted(wanted)
        except TypeError:
            return False
    if isinstance(wanted, bool) or isinstance(found, bool):
        return type(found) is type(wanted) and bool(found == wanted)
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(same, found, wanted))
    if isinstance(wanted, dict):
        return (
            isinstance(found, dict)
            and len(found) == len(wanted)
            and all(
                _key(found, k) is not None and same(found[_key(found, k)[0]], v) for k, v in wanted.items()
            )
        )
    if is_proxy(found):
        return False
    return bool(found == wanted)


def _key(found: dict[Any, Any], key: Any) -> Any:
    """JSON's keys are strings: 1 is found under "1" too."""
    if key in found:
        return (key,)
    return next(((k,) for k in found if isinstance(k, int | float) and str(k) == key), None)


class _SolutionModule(types.ModuleType):
    """What `import solution` and `from solution import f` give to a test."""

    def __init__(self, name: str, link: Link) -> None:
        super().__init__(name)
        self.__dict__["_link"] = link

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return _global(self.__dict__["_link"], name)
        except NameError:
            raise AttributeError(name) from None


def main(tests: bytes, verdict_fd: int, rpc: int) -> None:
    """Run the tests and write the verdict; never returns. Called in the forked and locked child."""
    try:
        payload = json.loads(tests)
        sys.stdout = open(1, "w", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
        if b"pytest" in tests:
            from pipelines.rewards.coding.pytest_shim import make_pytest

            sys.modules["pytest"] = make_pytest()
        verdict = run(payload, rpc)
    except BaseException as error:
        verdict = {"passed": False, "failed": -1, "why": f"{type(error).__name__}: {_text(error)}"[:300]}
    try:
        os.write(verdict_fd, json.dumps(verdict).encode() + b"\n")
    finally:
        os._exit(0)
