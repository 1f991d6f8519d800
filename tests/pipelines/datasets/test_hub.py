"""A hub id: fetched by another process, read by our own readers; a server of this machine is the hub."""

from __future__ import annotations

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pipelines.datasets import inspect_source, read_records

COMMIT = "0" * 40
FILES = {
    "data/train-00000.jsonl": b'{"text": "a"}\n{"text": "b"}\n',
    "data/test-00000.jsonl": b'{"text": "held out"}\n',
    "README.md": b"# rows\n",
}


class Hub(BaseHTTPRequestHandler):
    """The few addresses of the hub that a download of one dataset asks for."""

    def log_message(self, *args: object) -> None:
        """Nothing on the screen."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        if path.startswith("/api/datasets/org/rows/tree/"):
            self.answer(
                [{"type": "file", "path": n, "size": len(c), "oid": _oid(c)} for n, c in FILES.items()]
            )
        elif path.startswith("/api/datasets/org/rows"):
            siblings = [{"rfilename": name} for name in FILES]
            self.answer({"id": "org/rows", "sha": COMMIT, "siblings": siblings, "private": False})
        elif path.startswith(f"/datasets/org/rows/resolve/{COMMIT}/"):
            content = FILES[path.split(f"{COMMIT}/")[1]]
            self.send_response(200)
            self.send_header("ETag", f'"{_oid(content)}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)
        else:
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

    def answer(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


def _oid(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


@pytest.fixture
def hub(monkeypatch, tmp_path):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.chdir(tmp_path)
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_dataset_is_fetched_read_and_kept(hub, monkeypatch):
    report = inspect_source("org/rows")
    assert report.error is None, report.error
    assert (report.file, report.format, report.rows) == ("org/rows", "text", 2)
    assert any("test-00000.jsonl" in note for note in report.notes)
    hub.shutdown()
    hub.server_close()
    assert [record["text"] for record in read_records("org/rows")] == ["a", "b"]


def test_a_name_that_the_hub_does_not_know(hub):
    report = inspect_source("org/other")
    assert report.error is not None
    assert report.error.reason == "no such file, folder or dataset on the hub"


def test_no_network_and_nothing_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    report = inspect_source("org/rows")
    assert report.error is not None
    assert report.error.reason == "no such file or folder, and the hub cannot be reached"
