"""Downloads from a server on this machine, which breaks off, refuses, and serves other files."""

from __future__ import annotations

import gzip
import hashlib
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from support.data import write_mnist

from orthobench.data.download import CHUNK, Download, fetch
from orthobench.data.mnist import MNISTData
from orthobench.data.registry import dataset
from orthobench.errors import UsageError

CONTENT = bytes(range(256)) * 2000


class Server(ThreadingHTTPServer):
    """Serves `files`; remembers every request's path and where in the file it began."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {"/good": CONTENT, "/cut": CONTENT, "/other": bytes(len(CONTENT)), "/no-ranges": CONTENT}
        self.requests: list[tuple[str, int]] = []

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}{path}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        content = self.server.files.get(self.path)
        requested_range = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(requested_range.group(1)) if requested_range and self.path != "/no-ranges" else 0
        self.server.requests.append((self.path, start))
        if content is None:
            self.send_error(404)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        rest = content[start:]
        self.wfile.write(rest[: len(rest) // 2] if self.path == "/cut" else rest)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def download(server, *paths) -> Download:
    return Download("file", tuple(map(server.url, paths)), hashlib.md5(CONTENT).hexdigest(), len(CONTENT))


def test_complete_file_is_downloaded_once_and_reported(server, tmp_path):
    progress_calls = []
    for _ in range(2):
        file = fetch(download(server, "/good"), tmp_path / "new", lambda *progress: progress_calls.append(progress))
        assert file.read_bytes() == CONTENT
    assert server.requests == [("/good", 0)]
    assert progress_calls[-1] == ("file", len(CONTENT), len(CONTENT))
    assert [done for _, done, _ in progress_calls] == sorted(done for _, done, _ in progress_calls)


def test_interrupted_download_continues_at_another_mirror_and_in_another_process(server, tmp_path):
    with pytest.raises(UsageError, match="file cannot be downloaded; http://127"):
        fetch(download(server, "/cut"), tmp_path, lambda *_: None)
    partial_size = (tmp_path / "file.part").stat().st_size
    assert 0 < partial_size <= len(CONTENT) // 2
    assert fetch(download(server, "/cut", "/good"), tmp_path, lambda *_: None).read_bytes() == CONTENT
    (_, first), (_, second), (last, third) = server.requests
    assert (first, second, last) == (0, partial_size, "/good")
    assert partial_size < third <= partial_size + (len(CONTENT) - partial_size) // 2


def test_server_without_ranges_restarts_the_download(server, tmp_path):
    (tmp_path / "file.part").write_bytes(CONTENT[:1000])
    assert fetch(download(server, "/no-ranges"), tmp_path, lambda *_: None).read_bytes() == CONTENT


def test_wrong_files_are_refused_and_every_mirror_is_named(server, tmp_path):
    server.files["/gone"] = None
    with pytest.raises(UsageError) as error:
        fetch(download(server, "/other", "/gone"), tmp_path, lambda *_: None)
    assert f"{server.url('/other')}: the checksum of the received file differs" in str(error.value)
    assert f"{server.url('/gone')}: HTTP 404" in str(error.value)
    assert list(tmp_path.iterdir()) == []
    assert fetch(download(server, "/other", "/good"), tmp_path, lambda *_: None).read_bytes() == CONTENT


def test_server_that_sends_too_much_is_abandoned(server, tmp_path):
    server.files["/longer"] = CONTENT * 20
    received = []
    with pytest.raises(UsageError, match="the checksum of the received file differs"):
        fetch(download(server, "/longer"), tmp_path, lambda _, done, size: received.append(done - size))
    assert 0 < received[-1] <= CHUNK
    assert list(tmp_path.iterdir()) == []


def test_get_downloads_a_data_set(server, data_folder, tmp_path, monkeypatch):
    data_set, downloads = dataset("mnist"), []
    for file in write_mnist(tmp_path / "theirs").iterdir():
        packed = gzip.compress(file.read_bytes())
        server.files[f"/{file.name}.gz"] = packed
        checksum = hashlib.md5(packed).hexdigest()
        downloads.append(Download(f"{file.name}.gz", (server.url(f"/{file.name}.gz"),), checksum, len(packed)))
    monkeypatch.setattr(MNISTData, "downloads", downloads)
    data_set.get(lambda *_: None)
    assert data_set.faults(data_set.require()) == []
    assert not list((data_folder / ".downloads").iterdir())
