"""How values cross between the tests' process and the candidate's: plain data by value, everything else by
handle.

Both sides use one `Wire` over a socket. A message is a length and JSON text, nothing that can execute. Plain
data (numbers, strings, containers, and the value types of the standard library) is rebuilt as the exact
builtin type, whatever subclass the sender used; an object that is no plain data stays where it is, and the
other side gets a handle. Mutable containers carry numbers, so that shared and returned arguments keep their
identity and changes that a call makes to its arguments come back.
"""

from __future__ import annotations

import binascii
import collections
import json
import os
import types

TYPE_CHECKING = False
if TYPE_CHECKING:  # this module is part of every forked run: what it imports is paid for each time
    from collections.abc import Callable
    from typing import Any

MAX_MESSAGE_BYTES = 48 << 20
MAX_DEPTH = 400


class WireError(Exception):
    """The other side sent something that is no message."""


class Connection:
    """Length-prefixed JSON over a stream socket's descriptor."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def send(self, message: Any) -> None:
        data = json.dumps(message, separators=(",", ":")).encode("ascii")
        if len(data) > MAX_MESSAGE_BYTES:
            raise WireError("the value is too large to send")
        view = memoryview(len(data).to_bytes(4, "little") + data)
        while view:
            view = view[os.write(self.descriptor, view) :]

    def receive(self) -> Any:
        length = int.from_bytes(self._exactly(4), "little")
        if length > MAX_MESSAGE_BYTES:
            raise WireError("a message is too large")
        try:
            return json.loads(self._exactly(length))
        except (ValueError, RecursionError) as error:
            raise WireError(f"no message: {error}") from None

    def _exactly(self, count: int) -> bytes:
        pieces = []
        while count:
            piece = os.read(self.descriptor, min(count, 1 << 20))
            if not piece:
                raise WireError("the other side is gone")
            pieces.append(piece)
            count -= len(piece)
        return b"".join(pieces)


class Encoder:
    """Values to JSON. `numbers` maps id(container) to its number in this exchange."""

    def __init__(self, handle: Callable[[Any], list[Any] | None]) -> None:
        self.handle = handle
        self.numbers: dict[int, int] = {}
        self.kept: list[Any] = []
        self.depth = 0

    def value(self, obj: Any) -> Any:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise WireError("the value is too deeply nested")
        try:
            return self._value(obj, type(obj))
        finally:
            self.depth -= 1

    def _value(self, obj: Any, kind: type) -> Any:
        if obj is None or kind is bool:
            return obj
        # issubclass, not isinstance: `__class__` can be spoofed, the type cannot
        if issubclass(kind, int):  # an IntEnum too: tests compare it with plain numbers
            whole = int.__index__(obj)
            return whole if -(2**62) < whole < 2**62 else ["i", hex(whole)]
        if issubclass(kind, float):
            return float.__float__(obj)
        if issubclass(kind, str):
            return str.__str__(obj)
        builtin = self._container(obj, kind)
        if builtin is not None:
            return builtin
        return self._value_type(obj, kind)

    def _number(self, obj: Any) -> tuple[int, bool]:
        known = self.numbers.get(id(obj))
        if known is not None:
            return known, True
        number = len(self.numbers)
        self.numbers[id(obj)] = number
        self.kept.append(obj)
        return number, False

    def _container(self, obj: Any, kind: type) -> Any:
        if issubclass(kind, tuple):
            items = [self.value(x) for x in tuple.__iter__(obj)]
            fields = getattr(kind, "_fields", None)
            if kind is not tuple and isinstance(fields, tuple) and len(fields) == len(items):
                return ["n", str(kind.__name__), [str(f) for f in fields], items]
            return ["t", items]
        if issubclass(kind, list | dict | set | bytearray | collections.deque):
            number, known = self._number(obj)
            return ["r", number] if known else [*self.content(obj), number]
        if issubclass(kind, frozenset):
            return ["fs", [self.value(x) for x in frozenset.__iter__(obj)]]
        if issubclass(kind, bytes):
            return ["b", _base64(bytes.__getitem__(obj, slice(None)))]
        return None

    def content(self, obj: Any) -> list[Any]:
        """A mutable container's tag and what is in it."""
        kind = type(obj)
        if issubclass(kind, list):
            return ["l", [self.value(x) for x in list.__iter__(obj)]]
        if issubclass(kind, set):
            return ["s", [self.value(x) for x in set.__iter__(obj)]]
        if issubclass(kind, bytearray):
            return ["ba", _base64(bytes(obj))]
        if issubclass(kind, collections.deque):
            return ["q", [self.value(x) for x in collections.deque.__iter__(obj)], obj.maxlen]
        tag = "d"
        if issubclass(kind, collections.Counter):
            tag = "c"
        elif issubclass(kind, collections.OrderedDict):
            tag = "od"
        return [tag, [[self.value(k), self.value(v)] for k, v in dict.items(obj)]]

    def _value_type(self, obj: Any, kind: type) -> Any:
        if kind is complex:
            return ["z", obj.real, obj.imag]
        if kind is range:
            return ["ra", self.value(obj.start), self.value(obj.stop), self.value(obj.step)]
        if kind is slice:
            return ["sl", self.value(obj.start), self.value(obj.stop), self.value(obj.step)]
        name = f"{kind.__module__}.{kind.__qualname__}"
        if name == "fractions.Fraction":
            return ["fr", hex(obj.numerator), hex(obj.denominator)]
        if name == "decimal.Decimal":
            return ["de", str(obj)]
        if name in ("datetime.datetime", "datetime.date", "datetime.time"):
            return ["dt", kind.__name__, obj.isoformat()]
        if name == "datetime.timedelta":
            return ["td", obj.days, obj.seconds, obj.microseconds]
        if name == "re.Pattern" and isinstance(obj.pattern, str):
            return ["re", obj.pattern, obj.flags]
        if name == "uuid.UUID":
            return ["u", obj.hex]
        if kind.__module__ == "pathlib":
            return ["p", str(obj)]
        if obj is Ellipsis or obj is NotImplemented:
            return ["x", repr(obj)]
        if kind is type and obj.__module__ == "builtins":
            return ["ty", obj.__name__]
        if kind.__module__ == "numpy":
            array = _numpy_parts(obj)
            if array is not None:
                return array
        handle = self.handle(obj)
        if handle is None:
            raise WireError(f"a {kind.__name__} cannot be sent")
        return handle


class Decoder:
    """JSON to values; every container is built anew, of the exact builtin type."""

    def __init__(self, handle: Callable[[list[Any]], Any], known: dict[int, Any] | None = None) -> None:
        self.handle = handle
        self.objects: dict[int, Any] = known or {}
        self.depth = 0

    def value(self, data: Any) -> Any:
        if data is None or isinstance(data, bool | int | float | str):
            return data
        if not isinstance(data, list) or not data or not isinstance(data[0], str):
            raise WireError("a value of no known form")
        self.depth += 1
        if self.depth > MAX_DEPTH + 10:
            raise WireError("too deeply nested")
        try:
            return self._tagged(data)
        except (
            ValueError,
            TypeError,
            IndexError,
            KeyError,
            AttributeError,
            OverflowError,
            ArithmeticError,
        ) as error:
            raise WireError(f"a broken value: {error}") from None
        finally:
            self.depth -= 1

    def _tagged(self, data: list[Any]) -> Any:
        tag = data[0]
        if tag in ("l", "s", "d", "c", "od", "q", "ba"):
            return self.container(data, data[-1])
        if tag == "r":
            return self.objects[data[1]]
        if tag == "t":
            return tuple([self.value(x) for x in data[1]])
        simple = _SIMPLE.get(tag)
        if simple is not None:
            return simple(data)
        if tag in ("ra", "sl"):
            start, stop, step = (self.value(x) for x in data[1:4])
            return range(start, stop, step) if tag == "ra" else slice(start, stop, step)
        if tag == "fs":
            return frozenset(self.value(x) for x in data[1])
        if tag == "n":
            fields = [str(f) for f in data[2]]
            return _named(str(data[1]), tuple(fields))(*[self.value(x) for x in data[3]])
        if tag == "h":
            return self.handle(data)
        raise WireError(f"unknown tag {tag!r}")

    def container(self, data: list[Any], number: int) -> Any:
        """A new container, registered before it is filled, since it may hold itself."""
        empty: dict[str, Callable[[], Any]] = {
            "l": list, "s": set, "d": dict, "c": collections.Counter, "od": collections.OrderedDict,
            "ba": bytearray, "q": lambda: collections.deque(maxlen=data[2]),
        }  # fmt: skip
        obj = empty[data[0]]()
        self.objects[number] = obj
        self.fill(obj, data)
        return obj

    def fill(self, obj: Any, data: list[Any]) -> None:
        """Put the content of `data` into the container `obj`, in place of what it holds."""
        tag = data[0]
        if tag == "ba":
            obj[:] = binascii.a2b_base64(data[1])
            return
        obj.clear()
        if tag in ("d", "c", "od"):
            for key, value in data[1]:
                obj[self.value(key)] = self.value(value)
        elif tag == "s":
            obj.update([self.value(x) for x in data[1]])
        else:
            obj.extend([self.value(x) for x in data[1]])


_NAMES: dict[tuple[str, tuple[str, ...]], Any] = {}


def _named(name: str, fields: tuple[str, ...]) -> Any:
    key = (name, fields)
    if key not in _NAMES:
        if len(_NAMES) > 200 or len(fields) > 200:
            raise WireError("too many named tuples")
        _NAMES[key] = collections.namedtuple(name, fields)
    return _NAMES[key]


def _base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def _made(module: str, name: str, *arguments: Any) -> Any:
    """`module.name(*arguments)`, imported when it is needed."""
    return getattr(__import__(module), name)(*arguments)


def _date(data: list[Any]) -> Any:
    import datetime

    if data[1] not in ("datetime", "date", "time"):
        raise WireError("no date")
    return getattr(datetime, data[1]).fromisoformat(data[2])


def _builtin_type(data: list[Any]) -> Any:
    import builtins

    found = vars(builtins)[data[1]]
    if not isinstance(found, type):
        raise WireError("no type")
    return found


def _numpy_value(data: list[Any]) -> Any:
    import numpy

    dtype = numpy.dtype(str(data[1]))
    if dtype.hasobject:
        raise WireError("an array of objects")
    array = (
        numpy.frombuffer(binascii.a2b_base64(data[3]), dtype=dtype).reshape([int(n) for n in data[2]]).copy()
    )
    return array[()] if data[4] else array


_SIMPLE: dict[str, Callable[[list[Any]], Any]] = {
    "i": lambda d: int(d[1], 16),
    "b": lambda d: binascii.a2b_base64(d[1]),
    "z": lambda d: complex(d[1], d[2]),
    "fr": lambda d: _made("fractions", "Fraction", int(d[1], 16), int(d[2], 16)),
    "de": lambda d: _made("decimal", "Decimal", d[1]),
    "dt": _date,
    "td": lambda d: _made("datetime", "timedelta", d[1], d[2], d[3]),
    "re": lambda d: _made("re", "compile", d[1], d[2]),
    "u": lambda d: _made("uuid", "UUID", d[1]),
    "p": lambda d: _made("pathlib", "PurePosixPath", d[1]),
    "x": lambda d: {"Ellipsis": Ellipsis, "NotImplemented": NotImplemented}[d[1]],
    "ty": _builtin_type,
    "np": _numpy_value,
}


def _numpy_parts(obj: Any) -> list[Any] | None:
    """A numeric numpy array or scalar as dtype, shape and bytes."""
    try:
        import numpy

        if type(obj) is not numpy.ndarray and not issubclass(type(obj), numpy.generic):
            return None
        array = numpy.ascontiguousarray(obj)
        if array.dtype.hasobject:
            return None
        shape = list(numpy.shape(obj))
        return ["np", array.dtype.str, shape, _base64(array.tobytes()), not shape]
    except (ImportError, AttributeError, TypeError):
        return None


def kind_of(obj: Any) -> str:
    """The kind of a handle: fn, cls, coro or obj."""
    if isinstance(obj, type):
        return "cls"
    if isinstance(obj, types.CoroutineType):
        return "coro"
    if isinstance(obj, types.FunctionType | types.BuiltinFunctionType | types.MethodType):
        return "fn"
    return "obj"
