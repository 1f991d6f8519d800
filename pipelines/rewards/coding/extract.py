"""The program inside a completion: which fenced block counts, without its indent."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

MAX_SOURCE_CHARS = 400_000
_OPEN = re.compile(r"^([ \t]*(?:>[ \t]?)*)(`{3,}|~{3,})[ \t]*\{?\.?([\w+#.-]*)[^`\n]*$")
_PYTHON = frozenset({"", "python", "py", "python3", "py3", "python2", "pycon", "ipython", "sage", "cython"})
_OTHER = frozenset(
    {"bash", "sh", "shell", "console", "text", "txt", "output", "json", "yaml", "html", "c", "cpp", "c++"}
    | {"java", "js", "javascript", "rust", "go", "sql", "plaintext", "markdown", "md", "diff", "toml", "xml"}
    | {"stdout", "stdin"}
)


@dataclass(frozen=True)
class Block:
    """One fenced block: its tag in lower case, its text, and whether its fence was closed."""

    tag: str
    text: str
    closed: bool


def program_in(completion: str, entry_point: str | None) -> str | None:
    """The Python source that a completion gives, or None where it gives none.

    Among the fenced blocks after the reasoning: the last one that defines the entry point; where none does,
    or without an entry point, the last complete Python block (an unclosed one only where there is no other).
    Without any fence the text itself counts where it parses as a program.
    """
    text = completion.rpartition("</think>")[2] if "</think>" in completion else completion
    if "</think>" not in completion and "<think>" in completion:
        return None  # still thinking when it was cut off
    if len(text) > MAX_SOURCE_CHARS:
        return None
    blocks = [b for b in fenced_blocks(text) if b.tag not in _OTHER]
    tagged = [b for b in blocks if b.tag in _PYTHON and b.tag]
    python = tagged or [b for b in blocks if not b.tag] or blocks
    if not blocks:
        return _bare_program(text, entry_point)
    if entry_point:
        name = entry_point.replace("()", "").split(".")[0].strip()
        defining = [b for b in python if defines(b.text, name)]
        if defining:
            return _joined(python, defining[-1], name)
    closed = [b for b in python if b.closed and b.text.strip()]
    if not closed:
        return python[-1].text if python[-1].text.strip() else None
    if entry_point:
        return closed[-1].text
    programs = [b for b in closed if _compiles(b.text)]
    return (programs or closed)[-1].text


def fenced_blocks(text: str) -> list[Block]:
    """All ``` and ~~~ blocks of a text, in order; the last may be unclosed."""
    blocks: list[Block] = []
    lines = text.expandtabs(4).split("\n") if "\t```" in text else text.split("\n")
    fence, tag, indent = "", "", ""
    held: list[str] = []
    for line in lines:
        stripped = line.strip()
        if not fence:
            opened = _OPEN.match(line.rstrip("\r"))
            if opened:
                indent, fence, tag, held = opened.group(1), opened.group(2), opened.group(3).lower(), []
            continue
        bare = stripped.lstrip("> \t")
        if bare.startswith(fence) and not bare.strip(fence[0]):
            blocks.append(Block(tag, _unindented(held, indent), True))
            fence = ""
        else:
            held.append(line.rstrip("\r"))
    if fence:
        blocks.append(Block(tag, _unindented(held, indent), False))
    return blocks


def _unindented(lines: list[str], indent: str) -> str:
    if indent and all(not line.strip() or line.startswith(indent) or not line.strip(" >") for line in lines):
        lines = [line[len(indent) :] for line in lines]
    text = textwrap.dedent("\n".join(lines))
    if re.search(r"^>>> ", text, re.MULTILINE) and not re.search(r"^(?:def|class) ", text, re.MULTILINE):
        kept = [m.group(1) for m in re.finditer(r"^(?:>>>|\.\.\.) ?(.*)$", text, re.MULTILINE)]
        text = "\n".join(kept)
    return text


def defines(source: str, name: str) -> bool:
    """Whether a program binds `name` at its top level, by def, class, assignment or import."""
    return bool(
        re.search(
            rf"^(?:async\s+def|def|class)\s+{re.escape(name)}\b|^{re.escape(name)}\s*(?::[^=\n]+)?=(?!=)|"
            rf"^(?:from\s+\S+\s+)?import\s+.*\b{re.escape(name)}\b",
            source,
            re.MULTILINE,
        )
    )


def _joined(blocks: list[Block], chosen: Block, name: str) -> str:
    """The chosen block; with the imports and helpers of earlier blocks where it does not stand alone."""
    if not chosen.closed and not _compiles(chosen.text):
        return chosen.text
    missing = _names_needed(chosen.text)
    if not missing:
        return chosen.text
    before = [b for b in blocks[: blocks.index(chosen)] if b.closed and not defines(b.text, name)]
    helpers = [b.text for b in before if any(defines(b.text, n) for n in missing) and _compiles(b.text)]
    return "\n\n".join([*helpers, chosen.text])


def _names_needed(source: str) -> set[str]:
    """Names that a program uses and nowhere binds."""
    import ast
    import builtins

    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    bound: set[str] = set()
    used: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            bound.add(node.name)
    return {n for n in used - bound if not hasattr(builtins, n)}


def _compiles(source: str) -> bool:
    try:
        compile(source, "solution.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return False
    return True


def _bare_program(text: str, entry_point: str | None) -> str | None:
    """An unfenced completion: all of it where it is a program, else from its first to its last line of
    code.
    """
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        text = textwrap.dedent(text.strip("\n"))
        if _compiles(text):
            return text if _does_something(text) else None
        lines = text.split("\n")
        starts = [
            k
            for k, line in enumerate(lines)
            if re.match(r"(?:import|from|def|class|async def|@|[A-Za-z_][\w, ]*\s*=[^=])", line)
        ]
        for start in starts[:20]:
            for end in range(len(lines), start, -1):
                if len(lines) - end > 60:
                    break
                candidate = "\n".join(lines[start:end])
                if _compiles(candidate) and (
                    entry_point is None or defines(candidate, entry_point.split(".")[0])
                ):
                    return candidate
    return None


def _does_something(source: str) -> bool:
    """Whether a text that compiles is a program, not a word or two that happen to be an expression."""
    import ast

    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Name | ast.Constant)) for s in body)
