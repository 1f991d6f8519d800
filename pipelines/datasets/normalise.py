"""One row to TRL's columns for its format, whatever form it was written in."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from pipelines.datasets.forms import GOLDS, Match
from pipelines.datasets.messages import RowProblem, as_messages, kind_of

Row = dict[str, Any]
SYSTEM_REMEDY = "with a system prompt all rows become messages; put a row that has one first"
# where an answer starts in plain text that holds a conversation (Anthropic HH, ChatML, Zephyr, Llama 2)
TURN_MARKS = ("\n\nAssistant:", "<|im_start|>assistant\n", "<|assistant|>\n", "[/INST]")


def normalise_row(
    record: Row, match: Match, conversational: bool, *, mend: bool = False, drop_nulls: bool = False
) -> Row:
    """`record` with TRL's columns first and the columns that no part uses after them.

    `drop_nulls` takes out the nulls inside of lists and objects: Parquet and Arrow give every object of a
    list the keys of all of them.

    Raises RowProblem where a part is missing, null or of the wrong kind.
    """
    if drop_nulls:
        record = {
            key: without_nulls(value) if isinstance(value, (list, dict)) else value
            for key, value in record.items()
        }
    name = match.form.name
    convert = {
        "openai_preference": _openai_preference,
        "sharegpt_preference": _sharegpt_preference,
        "sharegpt_unpaired": _sharegpt_unpaired,
        "verl": _verl,
    }.get(name)
    if convert is not None:
        row = convert(record, match, mend)
    elif match.format == "text":
        row = {"text": _text(record, match, "text")}
    elif match.format == "messages":
        row = _messages(record, match, mend)
    elif match.format == "preference":
        row = _preference(record, match, conversational, mend)
    elif match.format == "prompt_only":
        row = {"prompt": _side(record, match, "prompt", conversational, mend)}
    else:
        row = _prompt_completion(record, match, conversational, mend)
    if match.format == "prompt_only" and name != "verl":
        row.update(_golds(record, match))
    used = set(match.columns.values())
    for key, value in record.items():
        if key not in used and key not in row:
            row[key] = value
    return row


def without_nulls(value: Any) -> Any:
    """`value` without keys that hold null, except for a message's content."""
    if isinstance(value, dict):
        return {
            key: without_nulls(entry) for key, entry in value.items() if entry is not None or key == "content"
        }
    if isinstance(value, list):
        return [without_nulls(entry) for entry in value]
    return value


def column(record: Row, match: Match, part: str) -> Any:
    """The value that plays `part`; raises RowProblem where the row lacks it or it is null."""
    source = match.columns[part]
    if source not in record:
        present = ", ".join(f'"{name}"' for name in list(record)[:6])
        raise RowProblem(f'"{source}" is missing', f"this row has {present or 'no columns'}")
    value = record[source]
    if value is None:
        raise RowProblem(f'"{source}" is null', "write the text, or leave the row out")
    return value


def _optional(record: Row, match: Match, part: str) -> Any:
    """The value of a part that a row may lack; None where the source has no column for it."""
    return record.get(match.columns[part]) if part in match.columns else None


def _text(record: Row, match: Match, part: str) -> str:
    value = column(record, match, part)
    if not isinstance(value, str):
        raise RowProblem(f'"{match.columns[part]}" is {kind_of(value)}, not text')
    return value


def _side(record: Row, match: Match, part: str, conversational: bool, mend: bool) -> Any:
    """A prompt or an answer: messages in a conversational dataset, else text."""
    value = column(record, match, part)
    source = match.columns[part]
    if conversational:
        if isinstance(value, str) and not value.lstrip().startswith("[{"):
            raise RowProblem(f'"{source}" is text, and a list of messages in other rows or columns')
        return as_messages(value, source, mend_tools=mend)
    if not isinstance(value, str):
        if isinstance(value, list):
            raise RowProblem(f'"{source}" is a list, and text in other rows or columns')
        raise RowProblem(f'"{source}" is {kind_of(value)}, not text')
    return value


def _messages(record: Row, match: Match, mend: bool) -> Row:
    messages = as_messages(column(record, match, "messages"), match.columns["messages"], mend_tools=mend)
    messages = _with_system(record, match, messages)
    if not any(message["role"] == "assistant" for message in messages):
        raise RowProblem(
            "no assistant message", "nothing can be trained in this row; add the answer or leave it out"
        )
    row: Row = {"messages": messages}
    tools = _optional(record, match, "tools")
    if tools is not None:
        row["tools"] = parse_tools(tools)
    return row


def parse_tools(tools: Any) -> Any:
    """Tools as a list of JSON schemas; they are often stored as text, so that Arrow adds no nulls to them."""
    if isinstance(tools, str):
        if not tools.strip():
            return []
        try:
            tools = json.loads(tools)
        except ValueError:
            raise RowProblem('"tools" is text that is not JSON', "write a list of tool schemas") from None
    if not isinstance(tools, list):
        raise RowProblem(f'"tools" is {kind_of(tools)}, not a list of tool schemas')
    return tools


def _with_system(record: Row, match: Match, messages: list[Row]) -> list[Row]:
    system = _optional(record, match, "system")
    if system is None or system == "":
        return messages
    if not isinstance(system, str):
        raise RowProblem(f'"{match.columns["system"]}" is {kind_of(system)}, not text')
    return [{"role": "system", "content": system}, *messages]


def _prompt_completion(record: Row, match: Match, conversational: bool, mend: bool) -> Row:
    if conversational and {"system", "history"} & match.columns.keys():
        prompt: Any = _conversation_of_text(record, match)
        completion: Any = [{"role": "assistant", "content": _text(record, match, "completion")}]
    else:
        if not conversational and _optional(record, match, "system"):
            raise RowProblem('"system" holds text here and none in the first rows', SYSTEM_REMEDY)
        prompt = _with_input(record, match, _side(record, match, "prompt", conversational, mend))
        completion = _side(record, match, "completion", conversational, mend)
    if conversational and not any(message["role"] == "assistant" for message in completion):
        raise RowProblem(
            "no assistant message", f'"{match.columns["completion"]}" must hold what the assistant says'
        )
    row: Row = {"prompt": prompt, "completion": completion}
    if match.format == "unpaired_preference":
        row["label"] = _label(column(record, match, "label"))
    return row


def _with_input(record: Row, match: Match, prompt: Any) -> Any:
    """Alpaca's instruction and its input, with an empty line between them."""
    extra = _optional(record, match, "input")
    if extra is None or extra == "":
        return prompt
    if not isinstance(extra, str):
        raise RowProblem(f'"{match.columns["input"]}" is {kind_of(extra)}, not text')
    return f"{prompt}\n\n{extra}"


def _conversation_of_text(record: Row, match: Match) -> list[Row]:
    """Alpaca with a system prompt or a history, as messages."""
    messages: list[Row] = []
    history = _optional(record, match, "history") or []
    if not isinstance(history, list):
        raise RowProblem(f'"{match.columns["history"]}" is {kind_of(history)}, not a list of pairs')
    for pair in history:
        if not (
            isinstance(pair, (list, tuple)) and len(pair) == 2 and all(isinstance(side, str) for side in pair)
        ):
            raise RowProblem("an entry of the history is not a pair of texts", 'write ["question", "answer"]')
        messages += [{"role": "user", "content": pair[0]}, {"role": "assistant", "content": pair[1]}]
    messages.append({"role": "user", "content": _with_input(record, match, _text(record, match, "prompt"))})
    return _with_system(record, match, messages)


def _label(value: Any) -> bool:
    if isinstance(value, str) and value.strip().lower() in ("true", "1", "yes", "false", "0", "no"):
        return value.strip().lower() in ("true", "1", "yes")
    if isinstance(value, (bool, int)) and value in (0, 1):
        return bool(value)
    raise RowProblem(f'"label" is {json.dumps(value, default=str)}, not true or false')


def _preference(record: Row, match: Match, conversational: bool, mend: bool) -> Row:
    if conversational and "system" in match.columns and isinstance(record.get(match.columns["chosen"]), str):
        return {
            "prompt": _conversation_of_text(record, match),
            "chosen": [{"role": "assistant", "content": _text(record, match, "chosen")}],
            "rejected": [{"role": "assistant", "content": _text(record, match, "rejected")}],
        }
    chosen = _side(record, match, "chosen", conversational, mend)
    rejected = _side(record, match, "rejected", conversational, mend)
    if "prompt" not in match.columns:
        return implicit_prompt(chosen, rejected)
    raw_prompt = column(record, match, "prompt")
    if not conversational:
        if _optional(record, match, "system"):
            raise RowProblem('"system" holds text here and none in the first rows', SYSTEM_REMEDY)
        prompt: Any = _with_input(record, match, _text(record, match, "prompt"))
        return {"prompt": prompt, "chosen": chosen, "rejected": rejected}
    if isinstance(raw_prompt, str) and not raw_prompt.lstrip().startswith("[{"):
        # a plain prompt beside whole conversations (UltraFeedback): the conversations hold it as messages
        if len(chosen) > 1 or len(rejected) > 1:
            return implicit_prompt(chosen, rejected)
        prompt = [{"role": "user", "content": raw_prompt}]
    else:
        prompt = as_messages(raw_prompt, match.columns["prompt"], mend_tools=mend)
    prompt = _with_system(record, match, prompt)
    size = len(prompt)
    if chosen[:size] == prompt and rejected[:size] == prompt and len(chosen) > size and len(rejected) > size:
        chosen, rejected = chosen[size:], rejected[size:]
    return {"prompt": prompt, "chosen": chosen, "rejected": rejected}


def implicit_prompt(chosen: Any, rejected: Any) -> Row:
    """The shared beginning of both answers as the prompt, as TRL's `extract_prompt` takes it.

    For messages it ends before the first message that differs, for text before the word that differs.
    """
    if isinstance(chosen, str):
        size = _shared_text(chosen, rejected)
        shared = size > 0
    else:
        size = 0
        while size < min(len(chosen), len(rejected)) - 1 and chosen[size] == rejected[size]:
            size += 1
        shared = any(message["role"] == "user" for message in chosen[:size])
    if not shared:
        raise RowProblem(
            "chosen and rejected share no prompt", 'both must answer the same prompt; add a "prompt" column'
        )
    return {"prompt": chosen[:size], "chosen": chosen[size:], "rejected": rejected[size:]}


def _shared_text(chosen: str, rejected: str) -> int:
    """How many characters both texts share as the prompt: up to the last shared turn, or whole words."""
    size = next(
        (i for i, (ours, theirs) in enumerate(zip(chosen, rejected, strict=False)) if ours != theirs),
        min(len(chosen), len(rejected)),
    )
    for mark in TURN_MARKS:
        found = chosen.rfind(mark, 0, size)
        if found >= 0:
            return found + len(mark)
    if size == min(len(chosen), len(rejected)):
        size -= 1  # one text begins the other: its last word is an answer
    return max(chosen.rfind(" ", 0, size + 1), chosen.rfind("\n", 0, size) + 1, 0)


def _golds(record: Row, match: Match) -> Row:
    """The gold columns under the names that rewards ask for; a number becomes its text."""
    row: Row = {}
    for gold in GOLDS:
        source = match.columns.get(gold)
        if source is None:
            continue
        value = record.get(source)
        if gold == "answer":
            final = final_answer(value)
            if isinstance(value, str) and final != value:
                row["solution"] = value
            value = final
        elif isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
            with contextlib.suppress(ValueError):
                value = json.loads(value)
        elif gold == "tests" and isinstance(value, list) and all(isinstance(test, str) for test in value):
            value = [{"code": test} for test in value]
        row[gold] = value
    return row


def final_answer(value: Any) -> Any:
    """A gold as text: a number is written out, GSM8K's worked solution ends in its final answer."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, str):
        # GSM8K writes the worked solution and then the answer after four number signs
        _, mark, final = value.rpartition("\n#### ")
        if mark and "\n" not in final.strip():
            return final.strip()
    return value


def _openai_preference(record: Row, match: Match, mend: bool) -> Row:
    given = column(record, match, "prompt")
    if not isinstance(given, dict) or "messages" not in given:
        raise RowProblem('"input" holds no messages', 'OpenAI writes {"input": {"messages": [...]}, ...}')
    row: Row = {"prompt": as_messages(given["messages"], "input.messages", mend_tools=mend)}
    for part in ("chosen", "rejected"):
        row[part] = as_messages(column(record, match, part), match.columns[part], mend_tools=mend)
    tools = given.get("tools")
    if tools is not None:
        row["tools"] = parse_tools(tools)
    return row


def _sharegpt_preference(record: Row, match: Match, mend: bool) -> Row:
    row: Row = {}
    for part in ("prompt", "chosen", "rejected"):
        row[part] = as_messages(column(record, match, part), match.columns[part], mend_tools=mend)
    row["prompt"] = _with_system(record, match, row["prompt"])
    return row


def _sharegpt_unpaired(record: Row, match: Match, mend: bool) -> Row:
    messages = as_messages(column(record, match, "prompt"), match.columns["prompt"], mend_tools=mend)
    if len(messages) < 2 or messages[-1]["role"] != "assistant":
        raise RowProblem(
            "no assistant message at the end", "the last message is the answer that the label is about"
        )
    return {
        "prompt": messages[:-1],
        "completion": messages[-1:],
        "label": _label(column(record, match, "label")),
    }


def _verl(record: Row, match: Match, mend: bool) -> Row:
    reward_model = column(record, match, "answer")
    if not isinstance(reward_model, dict) or "ground_truth" not in reward_model:
        raise RowProblem('"reward_model" holds no ground_truth')
    value = column(record, match, "prompt")
    prompt = value if isinstance(value, str) else as_messages(value, match.columns["prompt"], mend_tools=mend)
    return {"prompt": prompt, "answer": final_answer(reward_model["ground_truth"])}
