"""`advisor check data` as a user calls it."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "cases" / "data"


@pytest.fixture
def check(tmp_path):
    """Runs the verb as a process: (exit code, stdout, stderr)."""

    def run(*args: object) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "advisor.commands.check_data", *map(str, args)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "ADVISOR_CACHE": str(tmp_path / "cache")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout, done.stderr

    return run


def test_all_shared_cases_through_json(check):
    index = json.loads((CASES / "index.json").read_text())
    code, out, _ = check("--json", *(CASES / case["file"] for case in index))
    assert code == 1
    for case, found in zip(index, json.loads(out), strict=True):
        assert found["file"] == str(CASES / case["file"])
        for ours, theirs in (
            ("format", "detected_format"),
            ("conversational",) * 2,
            ("rows",) * 2,
            ("normalise",) * 2,
        ):
            assert found[ours] == case[theirs], case["file"]
        assert [w["line"] for w in found["warnings"]] == [w["line"] for w in case["warnings"]], case["file"]
        assert (found["error"] is None) == (case["error"] is None), case["file"]
        if case["error"] is not None:
            assert found["error"].get("line", found["error"].get("row")) == case["error"]["line"]


SHAPES = {
    '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}': "messages",
    '{"prompt": "a", "completion": "b"}': "prompt + completion",
    '{"prompt": "a", "answer": "b"}': "prompts with answer",
    '{"prompt": "a", "chosen": "b", "rejected": "c"}': "preference pairs",
    '{"instruction": "a", "input": "", "output": "b"}': "prompt + completion",
}


@pytest.mark.parametrize("row", SHAPES)
def test_a_shape_is_named_and_one_parsed_row_shown(row, check, tmp_path):
    (tmp_path / "rows.jsonl").write_text(row + "\n")
    code, out, _ = check("rows.jsonl")
    assert code == 0
    assert out.startswith(f"rows.jsonl: {SHAPES[row]}")
    assert "first row {" in out


def test_unknown_columns_ask_for_a_mapping(check, tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"q": "1+1", "a": "2"}\n')
    code, _, err = check("rows.jsonl")
    assert code == 1
    assert "--map prompt=q" in err
    code, out, _ = check("rows.jsonl", "--map", "prompt=q", "--map", "answer=a")
    assert code == 0
    assert "prompt <- q, answer <- a" in out
    code, _, err = check("rows.jsonl", "--map", "prompt=qq", "--map", "answer=a")
    assert code == 1
    assert 'did you mean "q"' in err
    code, _, err = check("rows.jsonl", "--map", "promt=q")
    assert code == 1
    assert 'did you mean "prompt"' in err


BAD = {
    "brace.jsonl": b'{"text": "a"}\n{"text": "b"\n{"text": "c"}\n',
    "quotes.jsonl": b"{'text': 'a'}\n",
    "two.jsonl": b'{"text": "a"} {"text": "b"}\n',
    "cut.jsonl": b'{"text": "a"}\n{"text": "b',
    "comma.jsonl": b'{"text": "a",}\n',
    "tab.jsonl": b'{"text": "a\tb"}\n',
    "latin.jsonl": '{"text": "café"}\n'.encode("latin-1"),
    "surrogate.jsonl": b'{"text": "\\ud83d"}\n',
    "none.jsonl": b'{"text": None}\n',
    "key.jsonl": b'{text: "a"}\n',
    "curly.jsonl": "{“text”: “a”}\n".encode(),
    "escape.jsonl": rb'{"text": "C:\dir"}' + b"\n",
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_line_is_told_with_its_place_its_text_and_a_fix(name, check, tmp_path):
    (tmp_path / name).write_bytes(BAD[name])
    code, out, err = check(name)
    assert (code, out) == (1, "")
    assert len(err.splitlines()) <= 6
    place = err.split(": ")[1].split(":")
    assert place[0] == name
    assert all(part.isdigit() for part in place[1:3])
    assert "  found: " in err
    assert "  fix: " in err


def test_a_bad_file_is_told_before_anything_heavy_is_loaded(tmp_path):
    (tmp_path / "bad.jsonl").write_bytes(BAD["brace.jsonl"])
    code = (
        "import sys\nfrom advisor.commands.check_data import main\nsys.argv = ['x', 'bad.jsonl']\n"
        "assert main() == 1\n"
        "heavy = {'torch', 'transformers', 'datasets', 'trl', 'mlflow', 'pyarrow'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    assert after.ru_utime - before.ru_utime < 1.5


def test_fix_writes_clean_rows_and_the_list(check, tmp_path):
    (tmp_path / "rows.jsonl").write_bytes(b'{"text": "a"}\n{"text": null}\n')
    code, out, _ = check("rows.jsonl", "--fix", "-o", "clean.jsonl")
    assert code == 0
    assert "1 rows left out" in out
    assert (tmp_path / "clean.jsonl").read_text() == '{"text":"a"}\n'
    assert json.loads((tmp_path / "clean.changes.jsonl").read_text()) == {
        "file": "rows.jsonl",
        "line": 2,
        "did": "left out",
        "what": '"text" is null',
    }
    for wrong in (
        ["--fix"],
        ["-o", "x.jsonl"],
        ["rows.jsonl", "--fix", "-o", "x.jsonl"],
        ["--fix", "-o", "rows.jsonl"],
    ):
        code, _, err = check("rows.jsonl", *wrong)
        assert code == 1
        assert err.startswith("error: ")


def test_leaks_between_training_and_evaluation(check, tmp_path):
    (tmp_path / "train.jsonl").write_text(
        '{"prompt": "1+1?", "answer": "2"}\n{"prompt": "1+2?", "answer": "3"}\n'
    )
    (tmp_path / "eval.jsonl").write_text(
        '{"question": " 1+2? ", "answer": "3"}\n{"question": "9", "answer": "9"}\n'
    )
    code, out, _ = check("train.jsonl", "--eval", "eval.jsonl", "--json")
    assert code == 0
    (finding,) = json.loads(out)[0]["findings"]
    assert (finding["code"], finding["count"], finding["share"], finding["places"]) == (
        "eval_leak",
        1,
        0.5,
        [2],
    )


def test_a_sample_is_quick_and_says_so(check, tmp_path):
    (tmp_path / "rows.jsonl").write_text(
        "".join(f'{{"text": "row {n}"}}\n' for n in range(5000)) + "broken\n"
    )
    code, out, _ = check("rows.jsonl", "--sample", "7")
    assert code == 0
    assert "7 rows (sample)" in out
    assert check("rows.jsonl")[0] == 1


def test_the_second_check_of_the_same_content_comes_from_the_cache(check, tmp_path):
    rows = "".join(json.dumps({"text": f"{n} {'word' * 100}"}) + "\n" for n in range(12_000))
    (tmp_path / "rows.jsonl").write_text(rows)
    code, first, _ = check("rows.jsonl", "--json")
    assert code == 0
    (entry,) = (tmp_path / "cache" / "data").iterdir()
    changed = entry.read_text().replace('"rows": 12000', '"rows": 12001')
    assert changed != entry.read_text()
    entry.write_text(changed)  # so that a cached answer can be told from a fresh one
    assert json.loads(check("rows.jsonl", "--json")[1])[0]["rows"] == 12_001
    (tmp_path / "copy.jsonl").write_text(rows)
    assert json.loads(check("copy.jsonl", "--json")[1])[0]["rows"] == 12_001
    assert json.loads(check("copy.jsonl", "--json")[1])[0]["file"] == "copy.jsonl"
    assert check("rows.jsonl", "--json", "--no-cache")[1] == first
    (tmp_path / "copy.jsonl").write_text(rows.replace("0 word", "0 ward", 1))
    assert json.loads(check("copy.jsonl", "--json")[1])[0]["rows"] == 12_000
    entry.write_text("{broken")
    assert json.loads(check("rows.jsonl", "--json")[1])[0]["rows"] == 12_000


def test_a_name_that_nothing_has_fails_soon_without_a_network(check):
    start = time.monotonic()
    code, _, err = check("nobody/nothing-of-this-name")
    assert code == 1
    assert len(err.splitlines()) <= 3
    assert time.monotonic() - start < 20  # 1.5 s on a quiet machine
