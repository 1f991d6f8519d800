"""A reward, tried on the user's rows before any model is loaded: golds that must pay, probes that must not.

`preflight` answers within about two seconds and runs before the first RL stage; `check_reward` does the same
on the whole dataset, with threads, determinism and cost.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from estimators.errors import BadInput
from estimators.record import Record
from pipelines.rewards.loading import RewardFunction, load_reward, required_columns, where
from pipelines.rewards.probes import PROBES, QUICK, Row, gold_as_text, gold_completions

BATCH = 64
CALL_LIMIT_S = 20.0
MAX_PLACES = 20
Severity = Literal["error", "warning", "note"]


class Finding(Record):
    """One thing that is wrong with a reward, or worth knowing."""

    code: str
    severity: Severity
    says: str
    remedy: str | None = None
    count: int = 0
    rows: list[int] = Field(default_factory=list)
    """The rows concerned, counted from 1; at most twenty."""
    sample: str | None = None
    place: str | None = None
    """`file:line` of the code at fault."""


class Findings(Record):
    """What was tried and what was found, the worst first."""

    reward: str
    rows: int
    golds_tried: int = 0
    golds_paid: int = 0
    probes_tried: int = 0
    none: int = 0
    """Golds that the reward could not score (None)."""
    exceptions: int = 0
    seconds: float = 0.0
    seconds_per_1000: float | None = None
    """Of one call with many completions, per thousand of them; None where nothing was timed."""
    findings: list[Finding] = Field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing here stops a run."""
        return all(finding.severity != "error" for finding in self.findings)

    @property
    def worst(self) -> Finding | None:
        return self.findings[0] if self.findings else None


def preflight(
    reward: str | RewardFunction,
    rows: Sequence[Row],
    base_dir: Path,
    task: str | None = None,
    budget_s: float = 1.8,
) -> Findings:
    """Try a reward on a few rows: their golds and a handful of attacks, as strings or as chats like the
    prompts.

    Stops adding rows when `budget_s` is spent. Raises BadInput only where the reward cannot be loaded;
    everything else is a finding. `task` ("math", "code", ...) leaves out probes that mean nothing there.
    """
    return _Check(reward, rows, base_dir, task).quick(budget_s)


def check_reward(
    reward: str | RewardFunction, rows: Sequence[Row], base_dir: Path, task: str | None = None
) -> Findings:
    """Try a reward on all rows, every probe, twice (determinism), and in two threads at once. See
    `preflight`.
    """
    return _Check(reward, rows, base_dir, task).full()


class _Failed(Exception):
    """The reward raised; the finding is already written."""


class _Check:
    def __init__(
        self, reward: str | RewardFunction, rows: Sequence[Row], base_dir: Path, task: str | None
    ) -> None:
        self.name = reward if isinstance(reward, str) else getattr(reward, "__name__", "reward")
        self.function = load_reward(reward, base_dir) if isinstance(reward, str) else reward
        path = self.name.rpartition(":")[0] if ".py:" in self.name else ""
        self.path = (base_dir / path) if path else None
        self.rows = list(rows)
        self.task = task
        self.findings: list[Finding] = []
        self.started = time.monotonic()
        self.golds_tried = self.golds_paid = self.probes_tried = self.none = self.exceptions = 0
        self.per_1000: float | None = None
        self.gold_pay: dict[int, float] = {}
        self.best: dict[int, Any] = {}

    # --- the two ways in ---

    def quick(self, budget_s: float) -> Findings:
        deadline = self.started + budget_s
        if self.columns_are_there():
            try:
                self.try_golds(range(min(len(self.rows), 4)))
                self.try_probes(range(min(len(self.rows), 2)), QUICK)
                place = 4
                while place < len(self.rows) and time.monotonic() < deadline - 0.4:
                    size = min(len(self.rows) - place, 16)
                    before = time.monotonic()
                    self.try_golds(range(place, place + size))
                    place += size
                    if time.monotonic() + 1.5 * (time.monotonic() - before) > deadline:
                        break
            except _Failed:
                pass
        return self.result()

    def full(self) -> Findings:
        if self.columns_are_there():
            try:
                self.try_golds(range(len(self.rows)))
                self.try_probes(range(min(len(self.rows), 100)), tuple(PROBES))
                self.try_again()
                self.try_threads()
            except _Failed:
                pass
        return self.result()

    def result(self) -> Findings:
        self.judge_golds()
        order = {"error": 0, "warning": 1, "note": 2}
        return Findings(
            reward=self.name,
            rows=len(self.rows),
            golds_tried=self.golds_tried,
            golds_paid=self.golds_paid,
            probes_tried=self.probes_tried,
            none=self.none,
            exceptions=self.exceptions,
            seconds=round(time.monotonic() - self.started, 3),
            seconds_per_1000=self.per_1000,
            findings=sorted(self.findings, key=lambda f: (order[f.severity], -f.count)),
        )

    # --- steps ---

    def columns_are_there(self) -> bool:
        if not self.rows:
            self.add("no-rows", "error", "there are no rows to try the reward on")
            return False
        needed = required_columns(self.function)
        missing = [name for name in needed if name not in self.rows[0]]
        if missing:
            self.add(
                "missing-column",
                "error",
                f"the reward needs the column {', '.join(missing)}; the rows have {', '.join(self.rows[0])}",
                remedy="rename the column in the data, or the parameter of the reward",
            )
        return not missing

    def try_golds(self, places: Sequence[int]) -> None:
        """Pay of each row's gold, in the best of its usual forms."""
        forms = {place: gold_completions(self.rows[place]) for place in places}
        waiting = [place for place in places if forms[place]]
        self.golds_tried += len(waiting)
        nones: set[int] = set()
        for form in range(max((len(forms[p]) for p in waiting), default=0)):
            asked = [p for p in waiting if form < len(forms[p]) and self.gold_pay.get(p, 0.0) < 1.0]
            for chunk in _chunks(asked):
                values = self.call([(p, forms[p][form]) for p in chunk])
                for place, value in zip(chunk, values, strict=True):
                    if value is None:
                        nones.add(place)
                    elif value > self.gold_pay.get(place, -math.inf):
                        self.gold_pay[place], self.best[place] = value, forms[place][form]
        unscored = {place for place in nones if place not in self.gold_pay}
        self.none += len(unscored)
        self.golds_paid += sum(1 for p in waiting if self.gold_pay.get(p, 0.0) > 0.0)
        if unscored:
            self.add_rows(
                "gold-none", "warning", "the reward cannot score", unscored, "(None): its gold is unusable"
            )

    def judge_golds(self) -> None:
        """Findings about golds that are not paid, once all have been tried."""
        if not self.gold_pay:
            if self.golds_tried and self.none == self.golds_tried:
                self.add(
                    "all-none", "error", "the reward returns None for every gold: nothing would be learnt"
                )
            return
        full = max(self.gold_pay.values())
        unpaid = [place for place, value in self.gold_pay.items() if value <= 0.0]
        partly = [place for place, value in self.gold_pay.items() if 0.0 < value < min(full, 1.0)]
        if unpaid:
            everywhere = len(unpaid) == len(self.gold_pay)
            share = "every row" if everywhere else f"{len(unpaid)} of {len(self.gold_pay)} rows"
            self.add(
                "gold-not-paid",
                "error" if everywhere or len(unpaid) > 0.02 * len(self.gold_pay) else "warning",
                f"the gold answer itself is not paid in {share}",
                remedy="fix the gold of these rows, or the reward: a right completion is not paid either",
                count=len(unpaid),
                rows=[p + 1 for p in sorted(unpaid)[:MAX_PLACES]],
                sample=self.sample(unpaid[0], gold_completions(self.rows[unpaid[0]])[0]),
            )
        if partly:
            self.add_rows(
                "gold-partly-paid", "note", "the gold is paid less than elsewhere in", set(partly), ""
            )
        if full > 1.0 or min(self.gold_pay.values()) < 0.0:
            self.add(
                "scale", "note", f"golds are paid up to {full:g}; the built-in rewards stay within 0 and 1"
            )

    def try_probes(self, places: Sequence[int], names: Sequence[str]) -> None:
        """Completions that must not be paid."""
        golds = [g for g in (gold_as_text(row) for row in self.rows[:200]) if g is not None]
        for name in names:
            made = [(p, PROBES[name](self.rows[p], golds)) for p in places]
            asked = [
                (p, text)
                for p, text in made
                if text is not None and text not in gold_completions(self.rows[p])
            ]
            paid: list[tuple[int, str, float]] = []
            for chunk in _chunks(asked):
                self.probes_tried += len(chunk)
                for (place, text), value in zip(chunk, self.call(chunk), strict=True):
                    if value is not None and value > 0.0:
                        paid.append((place, text, value))
            if paid:
                place, text, value = max(paid, key=lambda item: item[2])
                worth = max(self.gold_pay.get(place, 1.0), 1e-9)
                by_chance = len(paid) == 1 < len(asked)  # a prompt may end in its own answer
                self.add(
                    "probe-paid",
                    "error" if value >= 0.5 * worth and not by_chance else "warning",
                    f"pays {value:g} for a probe that must not be paid: {name}",
                    remedy="compare the final answer only, and exactly",
                    count=len(paid),
                    rows=[p + 1 for p, _, _ in paid[:MAX_PLACES]],
                    sample=self.sample(place, text),
                )

    def try_again(self) -> None:
        """The same completions once more must have the same rewards; and what a call costs."""
        asked = list(self.best.items())[:BATCH] or [(0, "I don't know.")]
        start = time.perf_counter()
        first = self.call(asked)
        self.per_1000 = round((time.perf_counter() - start) / len(asked) * 1000, 4)
        differing = {p for (p, _), a, b in zip(asked, first, self.call(asked), strict=True) if a != b}
        if differing:
            self.add_rows("random", "error", "another reward for the same completion in", differing, "")
        if self.per_1000 > 60:
            self.add(
                "slow",
                "warning",
                f"1,000 completions take {self.per_1000:.0f} s; generation would wait for it",
            )

    def try_threads(self) -> None:
        """Two threads at once must find what one finds."""
        asked = list(self.best.items())[:16]
        if not asked:
            return
        expected = self.call(asked)
        found: list[Any] = []

        def work() -> None:
            try:
                found.append(self.raw(asked))
            except Exception as error:
                found.append(f"{type(error).__name__}: {error}")

        threads = [threading.Thread(target=work, daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(CALL_LIMIT_S)
        if len(found) < 2 or any(values != expected for values in found):
            odd = next((v for v in found if v != expected), "no answer")
            self.add("threads", "warning", f"gives another result in a thread: {str(odd)[:120]}")

    # --- calling it ---

    def raw(self, asked: Sequence[tuple[int, Any]]) -> list[Any]:
        """One call as TRL makes it."""
        rows = [self.rows[place] for place, _ in asked]
        completions = [_shaped(completion, self.rows[place].get("prompt")) for place, completion in asked]
        columns = {
            name: [row.get(name) for row in rows] for name in rows[0] if name not in ("prompt", "completion")
        }
        return list(
            self.function(
                prompts=[row.get("prompt") for row in rows],
                completions=completions,
                completion_ids=[[0] * max(1, len(str(c)) // 4) for _, c in asked],
                **columns,
            )
        )

    def call(self, asked: Sequence[tuple[int, Any]]) -> list[float | None]:
        """The rewards of completions for rows, checked for form; _Failed where the reward raises."""
        if not asked:
            return []
        try:
            with _limited(CALL_LIMIT_S):
                values = self.raw(asked)
        except BadInput:
            raise
        except Exception as error:
            self.exceptions += 1
            self.blame(asked, error)
            raise _Failed from None
        if len(values) != len(asked):
            self.add("length", "error", f"returns {len(values)} values for {len(asked)} completions")
            raise _Failed
        odd = next((v for v in values if not _is_reward(v)), None)
        if odd is not None:
            self.add(
                "type",
                "error",
                f"returns {odd!r:.60} ({type(odd).__name__}); a reward is a finite number, or None",
            )
            raise _Failed
        return [None if v is None else float(v) for v in values]

    def blame(self, asked: Sequence[tuple[int, Any]], error: Exception) -> None:
        """The finding for an exception, with the first single sample that raises it."""
        guilty = asked[0]
        for one in asked if len(asked) > 1 else []:
            try:
                with _limited(CALL_LIMIT_S):
                    self.raw([one])
            except Exception as again:
                guilty, error = one, again
                break
        self.add(
            "exception",
            "error",
            f"raises {type(error).__name__}: {str(error)[:200]}",
            remedy="an exception stops the run; return 0.0 for a wrong answer, None for an unusable row",
            count=1,
            rows=[guilty[0] + 1],
            sample=self.sample(*guilty),
            place=where(error, self.path),
        )

    def sample(self, place: int, completion: Any) -> str:
        """A row and a completion in one line."""
        row = self.rows[place]
        gold = gold_as_text(row)
        shown = f"row {place + 1}" + (f", gold {gold!r:.60}" if gold is not None else "")
        return f"{shown}, completion {completion!r:.120}"

    def add(self, code: str, severity: Severity, says: str, **more: Any) -> None:
        self.findings.append(Finding(code=code, severity=severity, says=says, **more))

    def add_rows(self, code: str, severity: Severity, says: str, places: set[int], end: str) -> None:
        count = len(places)
        what = f"{says} {count} row{'s' if count != 1 else ''} {end}".strip()
        self.add(code, severity, what, count=count, rows=[p + 1 for p in sorted(places)[:MAX_PLACES]])


def _is_reward(value: Any) -> bool:
    if value is None:
        return True
    if isinstance(value, str | bytes | list | tuple | dict):
        return False
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError, OverflowError):
        return False


def _shaped(completion: Any, prompt: Any) -> Any:
    """A completion as TRL gives it: messages where the prompt is a chat."""
    if isinstance(completion, list):
        return completion
    return [{"role": "assistant", "content": completion}] if isinstance(prompt, list) else completion


def _chunks(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), BATCH):
        yield items[start : start + BATCH]


class TooSlow(Exception):
    """A call to the reward did not come back."""


@contextmanager
def _limited(limit_s: float) -> Iterator[None]:
    """Raise TooSlow in the main thread after `limit_s`; no limit in other threads, which cannot be
    interrupted.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: Any) -> None:
        raise TooSlow(f"no answer within {limit_s:.0f} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
