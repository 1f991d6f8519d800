"""Who may import whom, and what may not be imported at the top of a module."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAY_IMPORT = {
    "estimators": {"estimators"},
    "pipelines": {"pipelines", "estimators"},
    "advisor": {"advisor", "pipelines", "estimators"},
}
HEAVY = {"torch", "transformers", "trl", "peft", "datasets", "accelerate", "mlflow", "pandas", "pynvml"}
OURS = {"advisor", "pipelines", "estimators", "templates"}


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imports(path: Path, top_level_only: bool) -> set[str]:
    """Full names of the modules that a file imports, without those under `if TYPE_CHECKING`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: set[str] = set()
    pending: list[ast.AST] = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(node.module or "")
        inside_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        if not (inside_function and top_level_only):
            pending.extend(ast.iter_child_nodes(node))
    return found


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_point_down_only(package):
    for path in modules(package):
        used = {name.split(".")[0] for name in imports(path, top_level_only=False)} & OURS - {"templates"}
        assert used <= MAY_IMPORT[package], f"{path.relative_to(ROOT)} imports {used - MAY_IMPORT[package]}"


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_nothing_heavy_at_module_level(package):
    for path in modules(package):
        if path.is_relative_to(ROOT / "pipelines" / "training"):
            continue
        heavy = {name.split(".")[0] for name in imports(path, top_level_only=True)} & HEAVY
        assert not heavy, f"{path.relative_to(ROOT)} imports {heavy} at the top"


def test_training_code_is_only_imported_by_stage_processes():
    for package in MAY_IMPORT:
        for path in modules(package):
            if path.is_relative_to(ROOT / "pipelines" / "training"):
                continue
            used = {
                name for name in imports(path, top_level_only=False) if name.startswith("pipelines.training")
            }
            assert not used, f"{path.relative_to(ROOT)} imports {used}"


def test_planning_and_reporting_import_nothing_heavy():
    """Every module that the command line may load, in one process: none of them brings torch along."""
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for package in ("advisor", "pipelines", "estimators")
        for path in modules(package)
        if not path.is_relative_to(ROOT / "pipelines" / "training")
        and path.stem not in ("__init__", "__main__")
    ]
    code = (
        f"import importlib, sys\nfor name in {names!r}: importlib.import_module(name)\n"
        f"print(sorted(set(sys.modules) & {HEAVY!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
