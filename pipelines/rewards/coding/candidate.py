"""The candidate's side: the model's program is loaded here, and calls from the tests' process are served.

Nothing in this process is believed. It holds no test, no expected value and no verdict: all that it can do
is to answer questions with data.
"""

from __future__ import annotations

import io
import operator
import os
import sys
import threading
import types

from pipelines.rewards.coding.wire import Connection, Decoder, Encoder, WireError, kind_of

TYPE_CHECKING = False
if TYPE_CHECKING:  # this module is part of every forked run: what it imports is paid for each time
    from typing import Any

MAX_PRINTED = 1 << 20


def warm_up() -> None:
    """Make the streams and touch the memory that any program needs, before there is a program."""
    sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False, buffering=1)  # noqa: SIM115
    exec(compile("def f(x):\n    return [x + 1]\nprint(f(int('1')), end='')\n", "warm", "exec"), {})
    sys.stdout.flush()


def run_script(source: str) -> int:
    """Run `source` as `__main__` on the real standard streams; returns the exit status."""
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    sys.argv = ["solution.py"]
    status = 0
    try:
        exec(compile(source, "solution.py", "exec"), main.__dict__)
    except SystemExit as leave:
        status = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
        status = 1
    try:
        import atexit

        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
    except BaseException:
        status = status or 1
    return status & 0xFF


def serve(source: str, descriptor: int) -> None:
    """Load `source` as the module `solution` and answer the tests' questions until they hang up."""
    Server(Connection(descriptor)).run(source)


class _Printed(io.StringIO):
    """What the program prints, up to a cap: it is handed to the tests with the next answer."""

    def write(self, text: str) -> int:
        if self.tell() < MAX_PRINTED:
            super().write(text[:MAX_PRINTED])
        return len(text)


class Server:
    """Objects of the candidate by number, and the loop that serves them."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.objects: dict[int, Any] = {}
        self.numbers: dict[int, int] = {}
        self.module = types.ModuleType("solution")
        self.iterators: dict[int, Any] = {}
        self.remote: dict[int, Any] = {}
        self.lock = threading.RLock()

    def run(self, source: str) -> None:
        sys.modules["solution"] = self.module
        sys.stdin = io.StringIO()
        sys.stdout = _Printed()
        sys.argv = ["solution.py"]
        loaded: dict[str, Any] = {"loaded": True}
        try:
            exec(compile(source, "solution.py", "exec"), self.module.__dict__)
        except BaseException as error:
            loaded = {"loaded": False, "why": f"{type(error).__name__}: {error}"[:300]}
        self.connection.send(loaded)
        while True:
            self.connection.send(self.answer(self.connection.receive()))

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        """The reply to one question: a value or an exception, changed arguments, and what was printed."""
        decoder = Decoder(self._decode_handle)
        encoder = Encoder(self._encode_handle)
        try:
            arguments = decoder.value(message["a"])
            sent = dict(decoder.objects)
            for number, obj in sent.items():
                encoder.numbers[id(obj)] = number
                encoder.kept.append(obj)
            before = {number: encoder.content(obj) for number, obj in sent.items()}
        except WireError as error:
            return {"x": [["builtins", "TypeError"]], "w": str(error)}
        reply: dict[str, Any] = {}
        try:
            result = self._perform(message["o"], *arguments)
            reply["v"] = encoder.value(result)
        except BaseException as error:
            reply = self._exception(error, encoder)
        try:
            after = {number: encoder.content(obj) for number, obj in sent.items()}
            reply["m"] = [[n, content] for n, content in after.items() if content != before[n]]
        except WireError:
            reply["m"] = []
        printed = sys.stdout
        if isinstance(printed, _Printed) and printed.tell():
            reply["p"] = printed.getvalue()
            printed.seek(0)
            printed.truncate()
        return reply

    def _perform(self, operation: str, *arguments: Any) -> Any:
        if operation == "global":
            return self._global(*arguments)
        target = arguments[0]
        rest = arguments[1:]
        if operation == "call":
            return target(*rest[0], **rest[1])
        if operation == "get":
            return getattr(target, rest[0])
        if operation == "set":
            return setattr(target, rest[0], rest[1])
        if operation == "del":
            return delattr(target, rest[0])
        if operation == "await":
            import asyncio

            return asyncio.run(target)
        if operation == "next":
            return self._next(target)
        if operation == "isinstance":
            return isinstance(rest[0], target)
        if operation == "issubclass":
            return issubclass(rest[0], target)
        if operation == "release":
            return None
        return _OPERATIONS[operation](target, *rest)

    def _global(self, name: str) -> Any:
        if name not in self.module.__dict__:
            raise NameError(f"name {name!r} is not defined")
        return self.module.__dict__[name]

    def _next(self, target: Any) -> Any:
        try:
            return (True, next(target))
        except StopIteration:
            return (False, None)

    def _exception(self, error: BaseException, encoder: Encoder) -> dict[str, Any]:
        kinds: list[list[Any]] = []
        for kind in type(error).__mro__:
            if kind.__module__ == "builtins":
                kinds.append(["builtins", kind.__name__])
            else:
                kinds.append([self._number(kind), kind.__name__])
        try:
            arguments = encoder.value(error.args)
        except BaseException:
            arguments = None
        try:
            text = str(error)[:2000]
        except BaseException:
            text = ""
        return {"x": kinds, "w": text, "args": arguments}

    # --- handles ---

    def _number(self, obj: Any) -> int:
        number = self.numbers.get(id(obj))
        if number is None:
            number = len(self.numbers) + 1
            self.numbers[id(obj)] = number
            self.objects[number] = obj
        return number

    def _encode_handle(self, obj: Any) -> list[Any]:
        number = _remote_number(obj, self)
        if number is not None:
            return ["h", "yours", number, "obj", "", []]
        exception = isinstance(obj, type) and issubclass(obj, BaseException)
        bases = []
        if exception:
            bases = [
                ["builtins" if k.__module__ == "builtins" else self._number(k), k.__name__]
                for k in obj.__mro__[1:]
            ]
        return ["h", "mine", self._number(obj), kind_of(obj), _type_name(obj), bases]

    def _decode_handle(self, data: list[Any]) -> Any:
        if data[1] == "yours":
            return self.objects[data[2]]
        number = data[2]
        if number not in self.remote:
            self.remote[number] = Remote(self, number) if data[3] != "fn" else _remote_function(self, number)
        return self.remote[number]

    def ask(self, operation: str, number: int, *arguments: Any) -> Any:
        """Ask the tests' process about an object of theirs, and serve its questions meanwhile."""
        with self.lock:
            encoder = Encoder(self._encode_handle)
            self.connection.send({"back": operation, "n": number, "a": encoder.value(list(arguments))})
            while True:
                reply = self.connection.receive()
                if "o" in reply:
                    self.connection.send(self.answer(reply))
                    continue
                if "x" in reply:
                    import builtins

                    kind = getattr(builtins, str(reply["x"]), RuntimeError)
                    raise kind(reply.get("w", ""))
                return Decoder(self._decode_handle).value(reply["v"])


def _remote_number(obj: Any, server: Server) -> int | None:
    """The number of an object of the tests that came back."""
    if isinstance(obj, Remote):
        return obj._remote_number
    if isinstance(obj, types.FunctionType) and obj.__dict__.get("_remote_owner") is server:
        return int(obj.__dict__["_remote_number"])
    return None


def _type_name(obj: Any) -> str:
    name = obj.__name__ if isinstance(obj, type) else type(obj).__name__
    return str(name)[:100]


_BINARY = (
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "matmul",
    "and_",
    "or_",
    "xor",
    "lshift",
    "rshift",
)
_COMPARING = ("eq", "ne", "lt", "le", "gt", "ge", "getitem", "setitem", "delitem", "contains")
_UNARY = ("neg", "pos", "invert", "index")
_OPERATIONS: dict[str, Any] = {
    **{name: getattr(operator, name) for name in (*_BINARY, *_COMPARING, *_UNARY)},
    **{
        f.__name__: f
        for f in (len, iter, bool, str, repr, hash, int, float, abs, reversed, round, format, dir)
    },
    "radd": lambda target, other: other + target,
    "rsub": lambda target, other: other - target,
    "rmul": lambda target, other: other * target,
    "rtruediv": lambda target, other: other / target,
    "enter": lambda target: target.__enter__(),
    "exit": lambda target: target.__exit__(None, None, None),
}
"""The operations that the tests may ask for by name."""


def _remote_function(server: Server, number: int) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        return server.ask("call", number, list(args), kwargs)

    call._remote_number = number  # type: ignore[attr-defined]
    call._remote_owner = server  # type: ignore[attr-defined]
    return call


class Remote:
    """An object of the tests (a node, a stream) in the candidate's hands."""

    def __init__(self, server: Server, number: int) -> None:
        object.__setattr__(self, "_remote_server", server)
        object.__setattr__(self, "_remote_number", number)

    _remote_number: int

    def __getattr__(self, name: str) -> Any:
        return object.__getattribute__(self, "_remote_server").ask("get", self._remote_number, name)

    def __setattr__(self, name: str, value: Any) -> None:
        object.__getattribute__(self, "_remote_server").ask("set", self._remote_number, name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return object.__getattribute__(self, "_remote_server").ask(
            "call", self._remote_number, list(args), kwargs
        )

    def __iter__(self) -> Any:
        return object.__getattribute__(self, "_remote_server").ask("iter", self._remote_number)

    def __next__(self) -> Any:
        more, value = object.__getattribute__(self, "_remote_server").ask("next", self._remote_number)
        if not more:
            raise StopIteration
        return value

    def __len__(self) -> int:
        return int(object.__getattribute__(self, "_remote_server").ask("len", self._remote_number))

    def __getitem__(self, key: Any) -> Any:
        return object.__getattribute__(self, "_remote_server").ask("getitem", self._remote_number, key)

    def __bool__(self) -> bool:
        return True

    def __lt__(self, other: Any) -> Any:
        return object.__getattribute__(self, "_remote_server").ask("lt", self._remote_number, other)


def main(kind: str, source: bytes, rpc: int | None) -> None:
    """Run the program; never returns. Called in the forked and locked child."""
    text = source.decode("utf-8", errors="replace")
    status = 1
    try:
        if kind == "script":
            status = run_script(text)
        elif rpc is not None:
            serve(text, rpc)
    except BaseException:
        status = 1
    finally:
        os._exit(status)
