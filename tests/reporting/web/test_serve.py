"""`orthobench serve`: one page on the loopback device, that nobody can write through."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from support.pages import add_run, block
from support.served import served, write_database

from orthobench import api
from orthobench.cli.serve import live_page
from orthobench.errors import OrthobenchError
from orthobench.reporting.web import serve as serving
from orthobench.store import MetricRow, open_store
from orthobench.store.open import open_read_only
from orthobench.store.sqlite import log_size
from orthobench.system.location import Location
from orthobench.training.announcements import announced
from orthobench.training.checkpoint import checkpoint_root, checkpoints_at


@pytest.fixture
def database(tmp_path):
    return write_database(tmp_path)


@pytest.fixture
def renewed(database, monkeypatch):
    """A server of this test alone, which renders each change at once."""
    monkeypatch.setattr(serving, "CHECK_SECONDS", 0.0)
    monkeypatch.setattr(serving, "RENDER_SHARE", 1e9)
    with served(database) as opened:
        yield opened


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server for all tests that change nothing."""
    with served(write_database(tmp_path_factory.mktemp("served"))) as opened:
        yield opened


def ask(server, method="GET", path="/", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


def test_page_is_served_with_the_tag_of_its_state(server):
    answer, page = ask(server)
    assert (answer.status, answer.getheader("Content-Type")) == (200, "text/html; charset=utf-8")
    assert b"connect-src &#39;self&#39;" in page
    (tag,) = re.findall(rb'<html data-tag="(\w+)"', page)
    assert answer.getheader("ETag") == f'"{tag.decode()}"'
    head, body = ask(server, "HEAD")
    assert (head.status, body, head.getheader("Content-Length")) == (200, b"", str(len(page)))


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_change_of_the_database_changes_the_tag(renewed, database, method):
    answer, _ = ask(renewed, method)
    tag = answer.getheader("ETag")
    unchanged, body = ask(renewed, method, If_None_Match=tag)
    assert (unchanged.status, body) == (304, b"")
    with open_store(database) as store:
        (run,) = store.runs()
        store.log(run.id, [MetricRow("test", "mse", 11, 44, 0.05)], [], {"iterations": 44})
    changed, body = ask(renewed, method, If_None_Match=tag)
    assert changed.status == 200
    assert changed.getheader("ETag") != tag
    assert bool(body) == (method == "GET")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW"])
def test_other_methods_are_refused(server, method):
    answer, _ = ask(server, method)
    assert (answer.status, answer.getheader("Allow")) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    "path", ["/../r.db", "/..%2fr.db", "/r.db", "//etc/passwd", "/?x", "/news", "/../../r.db", "http://127.0.0.1/", "*"]
)
def test_only_the_page_is_served(server, path):
    answer, body = ask(server, path=path)
    assert answer.status in (403, 404)  # http.client takes the header Host from an absolute address
    assert b"SQLite" not in body


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "localhost:1", ""])
def test_name_that_resolves_to_this_machine_is_refused(server, host):
    answer, body = ask(server, Host=host.format(port=server.server_port))
    assert answer.status == 403
    assert b"<html" not in body


def test_both_names_of_this_machine_are_answered(server):
    for name in ("127.0.0.1", "localhost"):
        assert ask(server, Host=f"{name}:{server.server_port}")[0].status == 200
    assert ask(server, Host="")[0].status == 403


def test_server_listens_on_the_loopback_device_only(server):
    assert server.server_address[0] == "127.0.0.1"


def test_database_cannot_be_written(database):
    with open_read_only(database) as store:
        (run,) = store.runs()
        with pytest.raises((OrthobenchError, SQLAlchemyError)):
            store.update(run.id, {"message": "changed"})
        with pytest.raises((OrthobenchError, SQLAlchemyError)), store.engine.begin() as connection:
            connection.execute(text("delete from run"))
    with open_store(database) as store:
        assert [run.message for run in store.runs()] == [None]


def test_port_in_use_is_one_line(database, orthobench):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = orthobench("serve", "--db", database, "--port", str(port))
    assert done.code == 2
    assert done.err == f"error: port {port} is in use: give another with --port, or --port 0 for a free one\n"


def test_page_waits_for_a_database(orthobench, tmp_path, tiny_options, monkeypatch):
    monkeypatch.setattr("orthobench.reporting.web.serve.CHECK_SECONDS", 0.0)
    monkeypatch.setattr("orthobench.reporting.web.serve.RENDER_SHARE", 1e9)
    with api.serve("later.db", port=0) as server:
        page, before = server.page.current()
        assert b"Nothing measured yet" in page
        assert not (tmp_path / "later.db").exists()
        assert orthobench("run", "adding", "rnn", *tiny_options, "--db", "later.db").code == 0
        page, after = server.page.current()
        assert b"Nothing measured yet" not in page
        assert before != after


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, *(pytest.param(each, marks=pytest.mark.slow) for each in (signal.SIGINT, signal.SIGHUP))]
)
def test_signal_ends_the_server_cleanly(database, tmp_path, number):
    command = [sys.executable, "-m", "orthobench", "serve", "--db", database, "--port", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "PYTHONUNBUFFERED": "1"}, **pipes)
    try:
        line = process.stdout.readline().decode()
        assert line.startswith("http://127.0.0.1:")
        with open_store(database, create=True) as store:
            store.tag([run.key for run in store.runs()], ["new"])
            assert log_size(Path(database)) > 0
            process.send_signal(number)
            _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    assert errors.decode() == "the server has stopped\n"
    assert log_size(Path(database)) == 0


def test_page_lists_the_runs_of_a_sweep_until_it_ends(renewed, database):
    def states():
        return [[run["state"] for run in sweep] for sweep in block(ask(renewed)[1].decode(), "index")["sweeps"]]

    assert states() == []
    with open_store(database) as store:
        (run,) = store.runs()
        with announced(checkpoint_root(database), [{"key": run.key}, {"key": "0" * 16}]):
            assert states() == [["planned", "planned"]]  # the sweep begins after the run's last change
            store.log(run.id, [MetricRow("test", "mse", 11, 44, 0.1)], [], {"iterations": 44})
            assert states() == [["ended", "planned"]]
    assert states() == []


def test_label_of_a_model_may_be_given_before_its_first_run(database, monkeypatch):
    monkeypatch.setattr(serving, "CHECK_SECONDS", 0.0)
    monkeypatch.setattr(serving, "RENDER_SHARE", 1e9)
    with api.serve(database, port=0, labels={"gru": "Ours", "lstm": "Theirs"}) as server:

        def names():
            return block(server.page.current()[0].decode(), "index")["names"]

        assert names() == {"lstm": "Theirs"}
        with open_store(database) as store:
            add_run(store, "gru")
        assert names() == {"gru": "Ours", "lstm": "Theirs"}


def test_killed_run_is_shown_as_interrupted(renewed, database):
    with open_store(database) as store:
        (run,) = store.runs()
        store.update(run.id, {"status": "running"})
        with checkpoints_at(checkpoint_root(database), run.key).lock():
            assert "running" in block(ask(renewed)[1].decode(), "index")["rows"][0]
    assert "interrupted" in block(ask(renewed)[1].decode(), "index")["rows"][0]


def test_sweep_serves_its_page_at_a_free_port_until_it_ends(capsys, database):
    with live_page(Location.of(database)), live_page(Location.of(database)):
        addresses = re.findall(r"http://127\.0\.0\.1:(\d+)/", capsys.readouterr().err)
        assert len({*addresses}) == 2
        assert urllib.request.urlopen(f"http://127.0.0.1:{addresses[1]}/", timeout=20).status == 200
    with pytest.raises(urllib.error.URLError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{addresses[1]}/", timeout=20)
