"""answers.yaml: what is accepted, what is said about the rest, and that writing and reading agree."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.answers import Answers, read_answers, read_draft, write_answers, write_draft
from advisor.questions import SIX, TASKS
from estimators.errors import BadInput

SIX_LINES = """\
verifiable: yes
preference_pairs: no
long_cot: yes
limited_compute: no
base_capable: unsure
large_scale: no
"""


def read(tmp_path: Path, text: str) -> Answers:
    path = tmp_path / "answers.yaml"
    path.write_text(text)
    return read_answers(path)


def complaint(tmp_path: Path, text: str) -> str:
    """What is said about `text`, without the folder."""
    with pytest.raises(BadInput) as caught:
        read(tmp_path, text)
    return str(caught.value).replace(f"{tmp_path}/", "")


@pytest.mark.parametrize(
    "word", ["yes", "Yes", "YES", "y", "Y", "true", "True", "TRUE", "on", '"yes"', "'True'", '" y "']
)
def test_words_for_yes(tmp_path: Path, word: str) -> None:
    assert read(tmp_path, SIX_LINES.replace("verifiable: yes", f"verifiable: {word}")).verifiable == "yes"


@pytest.mark.parametrize("word", ["no", "No", "NO", "n", "N", "false", "False", "off", '"no"', "'false'"])
def test_words_for_no(tmp_path: Path, word: str) -> None:
    assert read(tmp_path, SIX_LINES.replace("verifiable: yes", f"verifiable: {word}")).verifiable == "no"


@pytest.mark.parametrize("word", ["unsure", "Unsure", "'UNSURE'"])
def test_words_for_unsure(tmp_path: Path, word: str) -> None:
    assert read(tmp_path, SIX_LINES.replace("verifiable: yes", f"verifiable: {word}")).verifiable == "unsure"


@pytest.mark.parametrize("word", ["maybe", "1", "0", "1.5", "[yes]", "{a: yes}", "2020-01-01"])
def test_other_words_are_refused_with_their_place(tmp_path: Path, word: str) -> None:
    said = complaint(tmp_path, SIX_LINES.replace("long_cot: yes", f"long_cot: {word}"))
    assert said.startswith('answers.yaml:3:1: "long_cot" is ')
    assert said.endswith("write yes, no or unsure")


def test_json_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "answers.json"
    path.write_text("{" + ", ".join(f'"{q.key}": "yes"' for q in SIX) + ', "seed": 3}')
    assert read_answers(path).seed == 3


def test_all_keys(tmp_path: Path) -> None:
    answers = read(
        tmp_path,
        SIX_LINES + "task: Tool_Calling\nmodel: Qwen/Qwen3-8B\nreward: mine.py:score\ntuning: LoRA\nseed: 7\n"
        "data:\n  demonstrations: d.jsonl\n  preferences: p.jsonl\n  prompts: q.jsonl\n  eval: e.jsonl\n"
        "budget: {gpu_hours: 10, usd: 12.5, wall_hours: 3}\nhardware: {gpu: H100, count: 8, nodes: 2}\n",
    )
    assert (answers.task, answers.tuning, answers.seed) == ("tool-calling", "lora", 7)
    assert answers.data.eval == "e.jsonl"
    assert (answers.budget.gpu_hours, answers.budget.usd) == (10, 12.5)
    assert answers.hardware != "auto"
    assert (answers.hardware.gpu, answers.hardware.count, answers.hardware.nodes) == ("H100", 8, 2)


def test_an_optional_key_left_empty_is_a_key_left_out(tmp_path: Path) -> None:
    bare = read(tmp_path, SIX_LINES)
    assert (
        read(tmp_path, SIX_LINES + "model:\ndata:\nbudget:\nhardware:\ntuning:\nseed:\ntask:\nreward:\n")
        == bare
    )


def test_missing_answers_are_named_with_the_way_to_add_them(tmp_path: Path) -> None:
    said = complaint(tmp_path, "verifiable: yes\n")
    for question in SIX[1:]:
        assert f'"{question.key}"' in said
    assert "advisor ask -o" in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("lines", "place", "words"),
    [
        ("seed: -1", "7:1", '"seed" is -1'),
        ("seed: true", "7:1", '"seed" is True'),
        ("seed: 1.5", "7:1", '"seed" is 1.5'),
        ("seed: 4294967296", "7:1", '"seed" is 4294967296'),
        ("seed: many", "7:1", "\"seed\" is 'many'"),
        ("budget:\n  usd: 0", "8:3", '"budget.usd" is 0'),
        ("budget:\n  usd: -3", "8:3", '"budget.usd" is -3'),
        ("budget:\n  gpu_hours: ten", "8:3", "\"budget.gpu_hours\" is 'ten'"),
        ("budget:\n  wall_hours: .inf", "8:3", '"budget.wall_hours" is inf'),
        ("budget:\n  wall_hours: yes", "8:3", '"budget.wall_hours" is True'),
        ("budget: 40", "7:1", '"budget" is 40'),
        ("hardware: 8", "7:1", "write auto, or gpu, count and nodes"),
        ("hardware: H100", "7:1", "write auto, or gpu, count and nodes"),
        ("hardware: {gpu: H100, count: 0}", "7:23", '"hardware.count" is 0'),
        ("hardware: {count: 2}", "7:1", '"hardware.gpu" is missing'),
        ("task: maths", "7:1", "math, code, extraction"),
        ("task: 3", "7:1", "math, code, extraction"),
        ("tuning: peft", "7:1", "'lora' or 'qlora'"),
        ("model: 7", "7:1", '"model" is 7'),
        ("model: '  '", "7:1", '"model" is empty'),
        ("data: prompts.jsonl", "7:1", "  eval: ..."),
        ("data:\n  prompts: [a, b]", "8:3", '"data.prompts"'),
        ("verifiable: no", "7:1", "and in line 1; keep one"),
        ("data: {eval: a, eval: b}", "7:17", "keep one"),
    ],
)
def test_a_wrong_value_is_named_with_line_and_column(
    tmp_path: Path, lines: str, place: str, words: str
) -> None:
    said = complaint(tmp_path, SIX_LINES + lines + "\n")
    assert said.startswith(f"answers.yaml:{place}: "), said
    assert words in said
    assert len(said.splitlines()) == 1


def test_at_most_five_lines_for_any_number_of_problems(tmp_path: Path) -> None:
    said = complaint(tmp_path, "".join(f"{q.key}: maybe\n" for q in SIX) + "seed: x\nfoo: 1\nbar: 2\n")
    assert len(said.splitlines()) == 5
    assert said.splitlines()[0].startswith("answers.yaml:1:1:")
    assert said.endswith("and 5 more")


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n"])
def test_an_empty_file(tmp_path: Path, text: str) -> None:
    assert "is empty; `advisor ask -o" in complaint(tmp_path, text)


@pytest.mark.parametrize("text", ["- verifiable\n", "yes\n", "3\n"])
def test_not_keys_and_values(tmp_path: Path, text: str) -> None:
    assert 'expected lines such as "verifiable: yes"' in complaint(tmp_path, text)


@pytest.mark.parametrize("text", ["x: 2024-13-45\n", "a: [1\n", "a: b: c\n", "\t\n", "a: *b\n", "\0"])
def test_what_is_no_yaml_is_one_message(tmp_path: Path, text: str) -> None:
    assert "answers.yaml" in (said := complaint(tmp_path, text))
    assert "not valid YAML: " in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("place", ["file/answers.yaml", "/proc/nowhere/answers.yaml", "."])
def test_where_nothing_can_be_written_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match=r"cannot be written|is a folder"):
        write_draft({}, Path(place))


# what TRL, Axolotl, LLaMA-Factory and hurried hands write, and the name that must be suggested
NAMES = {
    "base_model": "model",
    "model_name_or_path": "model",
    "model_name": "model",
    "pretrained_model_name_or_path": "model",
    "base_modle": "model",
    "Model": "model",
    "modle": "model",
    "dataset": "data.prompts",
    "datasets": "data.demonstrations",
    "dataset_name": "data.preferences",
    "train_file": "data.prompts",
    "eval_dataset": "data.eval",
    "test_datasets": "data.eval",
    "val_data": "data.eval",
    "prompts": "data.prompts",
    "preferences": "data.preferences",
    "demonstrations": "data.demonstrations",
    "reward_funcs": "reward",
    "reward_model": "reward",
    "rewad": "reward",
    "finetuning_type": "tuning",
    "use_peft": "tuning",
    "load_in_4bit": "tuning",
    "adapter": "tuning",
    "num_gpus": "hardware.count",
    "nnodes": "hardware.nodes",
    "gpu": "hardware.gpu",
    "gpu_hours": "budget.gpu_hours",
    "max_time": "budget.wall_hours",
    "random_seed": "seed",
    "verifable": "verifiable",
    "prefrence_pairs": "preference_pairs",
    "pairs": "preference_pairs",
    "long-cot": "long_cot",
    "chain_of_thought": "long_cot",
    "limited_compte": "limited_compute",
    "base_capble": "base_capable",
    "large_scal": "large_scale",
    "bugdet": "budget",
    "hardwear": "hardware",
    "learning_rate": "plan.yaml",
    "use_vllm": "plan.yaml",
    "num_generations": "plan.yaml",
    "per_device_train_batch_size": "plan.yaml",
    "learning_rat": "plan.yaml",
    "rl": "recommended from the six answers",
    "stage": "recommended from the six answers",
    "loss_type": "recommended from the six answers",
    "data.prompt": "data.prompts",
    "data.test": "data.eval",
    "data.validation_file": "data.eval",
    "data.sft_data": "data.demonstrations",
    "hardware.gpus": "hardware.count",
    "hardware.nnodes": "hardware.nodes",
    "hardware.num_gpus": "hardware.count",
    "budget.gpu_hour": "gpu_hours",
    "budget.dollars": "budget.usd",
}


@pytest.mark.parametrize(("key", "suggested"), NAMES.items())
def test_a_name_from_elsewhere_or_a_typo_gets_the_right_hint(
    tmp_path: Path, key: str, suggested: str
) -> None:
    block, _, name = key.rpartition(".")
    lines = f"{block}:\n  {name}: x\n" if block else f"{name}: x\n"
    if block == "hardware":
        lines = f"{block}:\n  gpu: H100\n  {name}: 2\n"
    said = complaint(tmp_path, SIX_LINES + lines)
    hints = said.split(f'unknown key "{key}"; ')[1]
    assert suggested in hints, said


@pytest.mark.parametrize("key", ["frobnicate", "xyz", "weather", "colour", "zebra"])
def test_a_name_from_nowhere_gets_the_list_and_no_guess(tmp_path: Path, key: str) -> None:
    said = complaint(tmp_path, SIX_LINES + f"{key}: 1\n")
    assert f'unknown key "{key}"; known: verifiable, ' in said


# --- writing ------------------------------------------------------------------------------------------------

words = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1).filter(
    str.strip
)
awkward = words | st.sampled_from(
    ["yes", "no", "1e5", "0x10", "null", "~", "- a", "a: b", "# c", "007", "1:30", "'", '"', "é"]
)
maybe = st.none() | awkward
numbers = st.none() | st.floats(1e-6, 1e7) | st.integers(1, 10_000_000)
three = st.sampled_from(["yes", "no", "unsure"])

answers_strategy = st.builds(
    Answers,
    **{question.key: three for question in SIX},
    task=st.none() | st.sampled_from(list(TASKS)),
    model=maybe,
    data=st.fixed_dictionaries(
        {}, optional=dict.fromkeys(["demonstrations", "preferences", "prompts", "eval"], maybe)
    ),
    reward=maybe,
    budget=st.fixed_dictionaries({}, optional=dict.fromkeys(["gpu_hours", "usd", "wall_hours"], numbers)),
    hardware=st.just("auto")
    | st.fixed_dictionaries({"gpu": awkward, "count": st.integers(1, 1024), "nodes": st.integers(1, 4096)}),
    tuning=st.sampled_from(["auto", "full", "lora", "qlora"]),
    seed=st.integers(0, 2**32 - 1),
)


@given(answers=answers_strategy)
@settings(max_examples=200, deadline=None)
def test_what_is_written_reads_back_the_same(
    tmp_path_factory: pytest.TempPathFactory, answers: Answers
) -> None:
    path = tmp_path_factory.getbasetemp() / "round.yaml"
    write_answers(answers, path)
    assert read_answers(path) == answers
    again = path.read_text()
    write_answers(read_answers(path), path)
    assert path.read_text() == again


def test_the_file_is_for_people(tmp_path: Path) -> None:
    path = tmp_path / "answers.yaml"
    write_answers(read(tmp_path, SIX_LINES + "model: m\n"), path)
    text = path.read_text()
    assert "\nverifiable: yes\n" in text
    assert "\nbase_capable: unsure\n" in text
    assert text.count("\n# ") == len(SIX)
    assert "null" not in text
    assert "true" not in text
    # the same words for a YAML 1.1 reader, where yes is a boolean
    assert yaml.safe_load(text)["verifiable"] is True


# --- drafts -------------------------------------------------------------------------------------------------


def test_a_draft_holds_what_is_answered_so_far(tmp_path: Path) -> None:
    path = tmp_path / "answers.yaml"
    draft = {"verifiable": "yes", "long_cot": "unsure", "model": "m", "data": {"prompts": "p.jsonl"}}
    write_draft(draft, path)
    assert read_draft(path) == draft
    assert "# preference_pairs: (not answered yet)" in path.read_text()
    with pytest.raises(BadInput, match="are missing"):
        read_answers(path)


def test_an_empty_file_is_an_empty_draft(tmp_path: Path) -> None:
    path = tmp_path / "answers.yaml"
    path.write_text("")
    assert read_draft(path) == {}
    write_draft({}, path)
    assert read_draft(path) == {}


def test_a_draft_with_a_wrong_value_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "answers.yaml"
    path.write_text("verifiable: perhaps\n")
    with pytest.raises(BadInput, match=r'answers\.yaml:1:1: "verifiable" is'):
        read_draft(path)
