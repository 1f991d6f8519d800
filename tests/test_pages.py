"""The report and MLflow's page, looked at in a real browser."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.small import ROOT

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
pytestmark = [
    pytest.mark.browser,
    pytest.mark.train,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on PATH (Debian: apt-get install chromium)"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture
def page():
    """A page that may talk to this machine alone; it keeps what it asked of others, and its errors."""
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        made = browser.new_page(viewport={"width": 1200, "height": 900})
        made.foreign, made.faults = [], []

        def only_local(route):
            if route.request.url.startswith(("file:", "http://127.0.0.1", "data:", "blob:")):
                route.continue_()
            else:
                made.foreign.append(route.request.url)
                route.abort()

        made.route("**/*", only_local)
        made.on("pageerror", lambda error: made.faults.append(str(error)))
        yield made
        browser.close()


def test_the_report_shows_everything_and_asks_nobody(finished_run, page):
    page.goto((finished_run / "report.html").as_uri())
    assert page.foreign == []
    assert page.faults == []
    headings = page.locator("h2").all_inner_texts()
    assert headings == [
        "Held-out results",
        "Samples, before and after",
        "Learning curves",
        "The data",
        "The decision",
        "The plan, predicted and measured",
        "How to repeat it",
    ]
    text = page.inner_text("body")
    for words in (
        "base model",
        "after SFT",
        "after DAPO",
        "Groups with signal",
        "arXiv:2503.14476",
        "seed 0",
    ):
        assert words in text
    assert page.locator(".curves svg").count() >= 8
    assert "demonstrations.jsonl" in text
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "nothing sticks out"
    assert page.locator("td.text").count() >= 4


def test_mlflows_page_shows_the_parent_and_its_stages(finished_run, page):
    server = subprocess.Popen(
        [sys.executable, "-m", "advisor", "ui", "run", "--port", "0"],
        cwd=finished_run.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        url = server.stdout.readline().split(": ", 1)[1].strip()
        assert url.startswith("http://127.0.0.1:")
        page.set_default_timeout(60_000)
        page.goto(url)
        page.get_by_text("SFT → DAPO on base-model").first.wait_for()
        for stage in ("00-probe", "01-sft", "02-dapo"):
            page.get_by_role("link", name=stage).first.wait_for()
        page.get_by_role("link", name="02-dapo").first.click()
        page.get_by_role("heading", name="02-dapo").first.wait_for()
        page.get_by_text("advisor.method").first.wait_for()
        assert page.faults == []
    finally:
        server.terminate()
        server.communicate(timeout=30)
    port = int(url.split(":")[2].split("/")[0])
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0, "nothing of the server is left"


def test_the_report_of_a_plan_that_has_not_run_says_so(tmp_path, task, page):
    from tests.small import plan_small, run_advisor

    run = plan_small(tmp_path, task, ("sft", "dapo"))
    paths = run_advisor(tmp_path, "report", "run").stdout.split()
    assert [Path(path).name for path in paths] == ["report.html", "report.md"]
    page.goto((run / "report.html").as_uri())
    assert "not run yet" in page.inner_text("body")
    assert "No held-out comparison yet" in page.inner_text("body")
