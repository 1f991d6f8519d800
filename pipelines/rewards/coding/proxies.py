"""The candidate's objects in the tests' hands: what a test may do with them, and what it never tells them.

Calling a proxy sends the arguments to the candidate's process and rebuilds the answer as plain data, so a
comparison is between plain data and happens here. An expected value is never sent: where an object of the
candidate meets a plain value in `==`, `<` or `-`, the candidate is not asked.
"""

from __future__ import annotations

import builtins
import copy
import io
import sys

from pipelines.rewards.coding.wire import Connection, Decoder, Encoder, WireError

TYPE_CHECKING = False
if TYPE_CHECKING:  # this module is part of every forked run: what it imports is paid for each time
    from typing import Any

TESTS_MODULE = "tests"
"""The name of the module that a test's code runs as."""

_READABLE_DUNDERS = frozenset(
    {"__name__", "__doc__", "__qualname__", "__annotations__", "__dict__", "__slots__"}
)


class CandidateGone(BaseException):
    """The candidate's process ended or broke the protocol: the tests fail, whatever they catch."""


class Remote(Exception):
    """An exception of the candidate that has no builtin class."""


class Link:
    """Questions to the candidate, and its objects by number."""

    def __init__(self, descriptor: int) -> None:
        self.connection = Connection(descriptor)
        self.proxies: dict[int, Any] = {}
        self.types: dict[str, type] = {}
        self.exceptions: dict[int, type[BaseException]] = {}
        self.local: dict[int, Any] = {}
        self.local_numbers: dict[int, int] = {}
        self.gone = False
        self.globals: dict[str, Any] = {}
        self.holding = False
        self.held: list[tuple[Decoder, Any, list[Any]]] = []
        self.originals: dict[int, tuple[Any, Any]] = {}

    def ask(self, operation: str, *arguments: Any) -> Any:
        """The candidate's answer; raises what it raised."""
        encoder = Encoder(self._encode_handle)
        try:
            encoded = encoder.value(list(arguments))
            sent = dict(enumerate(encoder.kept))
            self.connection.send({"o": operation, "a": encoded})
            reply = self.connection.receive()
            while "back" in reply:
                self.connection.send(self._serve(reply))
                reply = self.connection.receive()
            return self._settle(reply, sent)
        except (WireError, OSError, KeyError, TypeError, ValueError, AttributeError) as error:
            if getattr(error, "from_candidate", False):
                raise
            self.gone = True
            raise CandidateGone(f"{type(error).__name__}: {error}") from None

    def _settle(self, reply: dict[str, Any], sent: dict[int, Any]) -> Any:
        if reply.get("p"):
            sys.stdout.write(str(reply["p"]))
        changed = {int(number): content for number, content in reply.get("m", [])}
        known = dict(sent)
        if self.holding:  # inside an assert: the result may show the change, the test's own variables may not
            for number in changed.keys() & sent.keys():
                known[number] = copy.copy(sent[number])
        decoder = Decoder(self._decode_handle, known)
        for number, content in changed.items():
            if number in sent:
                original = sent[number]
                self.originals.setdefault(id(original), (original, copy.copy(original)))
                decoder.fill(known[number], content)
                if self.holding:
                    self.held.append((decoder, sent[number], content))
        if "x" in reply:
            raise self._exception(reply, decoder)
        return decoder.value(reply["v"])

    def hold(self) -> None:
        """From here to `release`, arguments that a call changes keep their old value in the test's
        variables.
        """
        self.holding = True

    def release(self) -> None:
        self.holding = False
        for decoder, target, content in self.held:
            decoder.fill(target, content)
        self.held.clear()

    def original(self, value: Any) -> Any:
        """`value` as it was before the candidate changed it."""
        if id(value) in self.originals:
            value = self.originals[id(value)][1]
        if type(value) in (list, tuple):
            return type(value)(self.original(x) for x in value)
        if type(value) is dict:
            return {k: self.original(v) for k, v in value.items()}
        return value

    # --- exceptions ---

    def _exception(self, reply: dict[str, Any], decoder: Decoder) -> BaseException:
        kinds = [(k[0], str(k[1])) for k in reply["x"]]
        try:
            arguments = (
                decoder.value(reply["args"]) if reply.get("args") is not None else (str(reply.get("w", "")),)
            )
        except WireError:
            arguments = (str(reply.get("w", "")),)
        kind = self._exception_class(kinds)
        try:
            error = kind(*arguments)
        except Exception:
            error = BaseException.__new__(kind)
            error.args = arguments if isinstance(arguments, tuple) else ()
        error.from_candidate = True  # type: ignore[attr-defined]
        return error

    def _exception_class(self, kinds: list[tuple[Any, str]]) -> type[BaseException]:
        """A local class for the candidate's exception class, with its builtin ancestors."""
        owner, name = kinds[0]
        if owner == "builtins":
            found = getattr(builtins, name, None)
            if isinstance(found, type) and issubclass(found, BaseException):
                return found
            return Remote
        if owner not in self.exceptions:
            rest = [k for k in kinds[1:] if k[1] != "object"]
            base = self._exception_class(rest) if rest else Exception
            self.exceptions[int(owner)] = type(name, (base,), {})
        return self.exceptions[owner]

    # --- handles ---

    def _encode_handle(self, obj: Any) -> list[Any] | None:
        number = _number_of(obj)
        if number is not None:
            return ["h", "yours", number, "obj", "", []]
        if isinstance(obj, type) and issubclass(obj, BaseException):
            for known, mirrored in self.exceptions.items():
                if mirrored is obj:
                    return ["h", "yours", known, "cls", "", []]
        if id(obj) not in self.local_numbers:
            self.local_numbers[id(obj)] = len(self.local) + 1
            self.local[len(self.local) + 1] = obj
        kind = "fn" if callable(obj) and not _open_object(obj) else "obj"
        return ["h", "mine", self.local_numbers[id(obj)], kind, "", []]

    def _decode_handle(self, data: list[Any]) -> Any:
        whose, number, kind, name = data[1], int(data[2]), data[3], str(data[4])
        if whose == "yours":
            return self.local[number]
        if kind == "coro":
            return self._awaiting(number)
        if kind == "cls" and data[5]:
            return self._exception_class([(number, name), *[(k[0], str(k[1])) for k in data[5]]])
        if number not in self.proxies:
            base = ClassProxy if kind == "cls" else Proxy
            key = f"{kind}:{name}"
            if key not in self.types:
                self.types[key] = type(
                    name if name.isidentifier() else "object", (base,), {"__module__": "solution"}
                )
            proxy: Any = object.__new__(self.types[key])
            object.__setattr__(proxy, "_link", self)
            object.__setattr__(proxy, "_number", number)
            object.__setattr__(proxy, "_kind", kind)
            object.__setattr__(proxy, "_type_name", name)
            object.__setattr__(proxy, "_built", False)
            self.proxies[number] = proxy
        return self.proxies[number]

    async def _awaiting(self, number: int) -> Any:
        return self.ask("await", ByNumber(number))

    # --- the candidate asks about our objects ---

    def _serve(self, message: dict[str, Any]) -> dict[str, Any]:
        """Answer a question of the candidate about a function, node or stream that a test passed to it."""
        decoder = Decoder(self._decode_handle)
        encoder = Encoder(self._encode_handle)
        try:
            target = self.local[int(message["n"])]
            arguments = decoder.value(message["a"])
            return {"v": encoder.value(self._permitted(str(message["back"]), target, arguments))}
        except CandidateGone:
            raise
        except Exception as error:
            return {"x": type(error).__name__, "w": str(error)[:500]}

    def _permitted(self, operation: str, target: Any, arguments: list[Any]) -> Any:
        if operation == "call":
            if not callable(target):
                raise TypeError("not callable")
            return target(*arguments[0], **arguments[1])
        if operation == "iter":
            return iter(target)
        if operation == "next":
            try:
                return (True, next(target))
            except StopIteration:
                return (False, None)
        if not _open_object(target):
            raise AttributeError("the tests keep this to themselves")
        if operation in ("len", "getitem", "lt"):
            if operation == "len":
                return len(target)
            return target[arguments[0]] if operation == "getitem" else target < arguments[0]
        name = arguments[0]
        if not isinstance(name, str) or name.startswith("_"):
            raise AttributeError(f"{name!r} is private to the tests")
        if operation == "get":
            return getattr(target, name)
        if operation == "set" and not callable(getattr(type(target), name, None)):
            return setattr(target, name, arguments[1])
        raise AttributeError(name)


class ByNumber:
    """An object of the candidate that has no proxy here."""

    def __init__(self, number: int) -> None:
        self.number = number


def _number_of(obj: Any) -> int | None:
    if type(obj) is ByNumber:
        return obj.number
    if issubclass(type(obj), Proxy):
        return int(object.__getattribute__(obj, "_number"))
    return None


def _open_object(obj: Any) -> bool:
    """Whether the candidate may read an object's attributes: an instance of a test's class, or a text
    stream.
    """
    kind = type(obj)
    return isinstance(obj, io.StringIO | io.BytesIO) or (
        kind.__module__ == TESTS_MODULE and not isinstance(obj, type)
    )


def _ask(proxy: Any, operation: str, *arguments: Any) -> Any:
    return object.__getattribute__(proxy, "_link").ask(operation, proxy, *arguments)


def is_proxy(obj: Any) -> bool:
    return issubclass(type(obj), Proxy)


def _truth(answer: Any) -> bool:
    return answer is True


class Proxy:
    """An object of the candidate in the tests' hands."""

    _link: Link
    _number: int
    _kind: str
    _type_name: str
    _built: bool
    """Whether a class of the solution, called by a test, made it: the tests then expect its operators to
    work.
    """

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__") and name not in _READABLE_DUNDERS:
            return object.__getattribute__(self, name)
        return _ask(self, "get", name)

    def __setattr__(self, name: str, value: Any) -> None:
        _ask(self, "set", name, value)

    def __delattr__(self, name: str) -> None:
        _ask(self, "del", name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = _ask(self, "call", args, kwargs)
        kind, name = object.__getattribute__(self, "_kind"), object.__getattribute__(self, "_type_name")
        if kind == "cls" and name[:1].isupper() and is_proxy(result):
            object.__setattr__(result, "_built", True)
        return result

    # comparisons: two objects of the candidate are its own affair; a plain value on the other side is never
    # sent

    def __eq__(self, other: object) -> bool:
        return self is other or (is_proxy(other) and _truth(_ask(self, "eq", other)))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return int(_ask(self, "hash"))

    def __lt__(self, other: Any) -> Any:
        return _truth(_ask(self, "lt", other)) if is_proxy(other) else NotImplemented

    def __le__(self, other: Any) -> Any:
        return _truth(_ask(self, "le", other)) if is_proxy(other) else NotImplemented

    def __gt__(self, other: Any) -> Any:
        return _truth(_ask(self, "gt", other)) if is_proxy(other) else NotImplemented

    def __ge__(self, other: Any) -> Any:
        return _truth(_ask(self, "ge", other)) if is_proxy(other) else NotImplemented

    def __bool__(self) -> bool:
        return _truth(_ask(self, "bool"))

    def __contains__(self, item: Any) -> bool:
        if is_proxy(item) or object.__getattribute__(self, "_built"):
            return _truth(_ask(self, "contains", item))
        return any(item is x or item == x for x in self)

    # what tells the candidate nothing but the question

    def __len__(self) -> int:
        return int(_ask(self, "len"))

    def __iter__(self) -> Any:
        iterator = _ask(self, "iter")
        return iterator if not is_proxy(iterator) else _Iterator(iterator)

    def __next__(self) -> Any:
        more, value = _ask(self, "next")
        if more is not True:
            raise StopIteration
        return value

    def __getitem__(self, key: Any) -> Any:
        return _ask(self, "getitem", key)

    def __setitem__(self, key: Any, value: Any) -> None:
        _ask(self, "setitem", key, value)

    def __delitem__(self, key: Any) -> None:
        _ask(self, "delitem", key)

    def __reversed__(self) -> Any:
        return _Iterator(_ask(self, "reversed"))

    def __str__(self) -> str:
        return str(_plain(_ask(self, "str"), str))

    def __repr__(self) -> str:
        return str(_plain(_ask(self, "repr"), str))

    def __format__(self, spec: str) -> str:
        return str(_plain(_ask(self, "format", spec), str))

    def __int__(self) -> int:
        return int(_plain(_ask(self, "int"), int))

    def __index__(self) -> int:
        return int(_plain(_ask(self, "index"), int))

    def __float__(self) -> float:
        return float(_plain(_ask(self, "float"), float))

    def __abs__(self) -> Any:
        return _ask(self, "abs")

    def __neg__(self) -> Any:
        return _ask(self, "neg")

    def __pos__(self) -> Any:
        return _ask(self, "pos")

    def __invert__(self) -> Any:
        return _ask(self, "invert")

    def __round__(self, digits: int | None = None) -> Any:
        return _ask(self, "round", digits)

    def __dir__(self) -> Any:
        return _ask(self, "dir")

    def __enter__(self) -> Any:
        return _ask(self, "enter")

    def __exit__(self, *details: Any) -> Any:
        return _ask(self, "exit")


def _plain(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"expected {kind.__name__}")
    return value


class _Iterator:
    """A local iterator over an iterator of the candidate."""

    def __init__(self, proxy: Any) -> None:
        self.proxy = proxy

    def __iter__(self) -> _Iterator:
        return self

    def __next__(self) -> Any:
        return Proxy.__next__(self.proxy)


def _binary(operation: str, reflected: str | None) -> tuple[Any, Any]:
    """An operator and its reflection: both sides the candidate's, or one built by a class that a test called.

    With a plain value on the other side the result must be an object again: a number would let `abs(x - 3) <
    eps` be answered by a program that has just been told the 3.
    """

    def mixed(self: Any, result: Any) -> Any:
        if not is_proxy(result):
            raise TypeError(
                "an operator of the solution with a plain value must give an object of the solution"
            )
        object.__setattr__(result, "_built", True)
        return result

    def forward(self: Any, other: Any) -> Any:
        if is_proxy(other):
            return _ask(self, operation, other)
        if not object.__getattribute__(self, "_built"):
            return NotImplemented
        return mixed(self, _ask(self, operation, other))

    def backward(self: Any, other: Any) -> Any:
        if not object.__getattribute__(self, "_built") or reflected is None:
            return NotImplemented
        return mixed(self, _ask(self, reflected, other))

    return forward, backward


_REFLECTED = {"add": "radd", "sub": "rsub", "mul": "rmul", "truediv": "rtruediv"}
for _name in (
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "matmul",
    "and",
    "or",
    "xor",
    "lshift",
    "rshift",
):
    _op, _reflected = _name + "_" * (_name in ("and", "or")), _REFLECTED.get(_name)
    _forward, _backward = _binary(_op, _reflected)
    setattr(Proxy, f"__{_name}__", _forward)
    if _reflected:
        setattr(Proxy, f"__r{_name}__", _backward)


class ClassProxy(Proxy):
    """A class of the candidate."""

    def __instancecheck__(self, instance: Any) -> bool:
        return is_proxy(instance) and _truth(_ask(self, "isinstance", instance))

    def __subclasscheck__(self, subclass: Any) -> bool:
        return is_proxy(subclass) and _truth(_ask(self, "issubclass", subclass))
