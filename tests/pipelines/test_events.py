"""The event log survives what a kill leaves behind, and redone steps count once."""

import math

from pipelines.events import EventLog, EventReader, metric_series, read_events, seconds_so_far


def test_a_reader_sees_each_event_once(tmp_path):
    log = EventLog(tmp_path / "events.jsonl")
    reader = EventReader(tmp_path / "events.jsonl")
    log.write("phase", name="train")
    assert [event["name"] for event in reader.new()] == ["train"]
    assert reader.new() == []
    log.write("phase", name="save")
    assert [event["name"] for event in reader.new()] == ["save"]


def test_half_a_line_waits_for_its_other_half(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_text('{"kind": "note", "text": "whole"}\n{"kind": "no')
    reader = EventReader(path)
    assert [event["text"] for event in reader.new()] == ["whole"]
    with path.open("a") as file:
        file.write('te", "text": "late"}\n')
    assert [event["text"] for event in reader.new()] == ["late"]


def test_a_line_cut_by_a_kill_hides_nothing_after_it(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_text('{"kind": "note", "te\n{"kind": "note", "text": "after"}\n[1]\n')
    assert [event["text"] for event in read_events(path)] == ["after"]


def test_not_a_number_is_written_as_null(tmp_path):
    log = EventLog(tmp_path / "events.jsonl")
    log.write("metrics", step=1, max_steps=2, values={"loss": math.nan, "rows": [math.inf, 1.0]})
    (event,) = read_events(tmp_path / "events.jsonl")
    assert event["values"] == {"loss": None, "rows": [None, 1.0]}


def test_a_step_that_was_redone_counts_once_and_the_last_time(tmp_path):
    log = EventLog(tmp_path / "events.jsonl")
    for step, loss in ((1, 3.0), (2, 2.0), (3, 1.5), (2, 2.1), (3, 1.4)):
        log.write("metrics", step=step, max_steps=3, values={"loss": loss})
    assert metric_series(read_events(log.path))["loss"] == [(1, 3.0), (2, 2.1), (3, 1.4)]


def test_a_missing_file_has_no_events(tmp_path):
    assert read_events(tmp_path / "none.jsonl") == []


def test_the_time_of_earlier_attempts_is_from_first_to_last_event():
    """Attempt one lasts 10 s, then a night passes, attempt two lasts 5 s."""
    times = [("attempt", 0), ("metrics", 10), ("attempt", 30_000), ("phase", 30_005)]
    assert seconds_so_far([{"kind": kind, "time": float(t)} for kind, t in times]) == 15.0
    assert seconds_so_far([]) == 0.0
