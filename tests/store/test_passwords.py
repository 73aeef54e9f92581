"""No command shows or stores the password of a database's URL."""

from __future__ import annotations

import pickle
import socket
from pathlib import Path

import pytest

from orthobench.errors import OrthobenchError, UsageError, without_passwords
from orthobench.executors.job import Job
from orthobench.options.run_options import RunOptions
from orthobench.plugins import Catalog
from orthobench.sinks.targets import Target
from orthobench.spec.resolve import resolve
from orthobench.system.location import Location
from orthobench.weights.weights_files import WeightsFolder, weights_folder

SECRET = "Xyzzy7Plugh"
BASELINE = """\
[task.adding]
seeds = [0, 1]
settings = { sequence_length = 10, train_size = 40, test_size = 20, batch_size = 10, epochs = 1, hidden_size = 8 }

[[run]]
task = "adding"
model = "rnn"
"""
FAILING = f"""
from orthobench.model import Model

class Failing(Model):
    \"\"\"A model that fails with a URL in its message.\"\"\"

    name = "failing"

    def __init__(self, *arguments):
        raise RuntimeError("no answer from postgresql://me:{SECRET}@host/name?sslpassword={SECRET}&user=x")
"""


def commands(tiny_options: list[str], key: str = "0") -> list[tuple[str, ...]]:
    """Return every command that reads or writes a database, in an order in which each has runs to work on."""
    grid = ("--models", "rnn,lstm", "--seeds", "2", *tiny_options)
    return [
        ("run", "adding", "rnn", *tiny_options),
        ("sweep", "adding", *grid, "--dry-run", "--no-profile"),
        ("sweep", "adding", *grid, "-j", "0"),
        ("sweep", "adding", *grid, "--seeds", "3", "-j", "2"),
        ("sweep", "adding", "--models", "failing,rnn", "--plugin", "failing.py", *tiny_options, "-j", "0"),
        ("sweep", "adding", "--models", "failing", "--plugin", "failing.py", *tiny_options, "-j", "1"),
        ("run", "adding", "failing", "--plugin", "failing.py", *tiny_options, "--force"),
        ("tune", "adding", "--models", "rnn", "--grid", "learning_rate=1e-4..1e-2:log", "--trials", "2", *tiny_options),
        ("reproduce", "arjovsky2016", "--dry-run", "--no-profile"),
        ("study", "one", "adding", *grid),
        ("bench", "--quick", "--rounds", "1", "--shape", "scornn"),
        ("ls",),
        ("ls", "--json", "--where", "seed=99"),
        ("show", key),
        ("show", "nothing"),
        ("compare", "model=rnn", "model=lstm"),
        ("report", "--html"),
        ("check", "baseline.toml"),
        ("check", "baseline.toml", "--db-only"),
        ("db", "info"),
        ("db", "info", "--json"),
        ("db", "upgrade"),
        ("db", "backup", "copy.db"),
        ("db", "merge", "other.db"),
        ("db", "export", "exported"),
    ]


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "baseline.toml").write_text(BASELINE)
    (tmp_path / "failing.py").write_text(FAILING)
    return tmp_path


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def leaks(folder: Path) -> list[str]:
    """Return the files that contain the secret."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "failing.py"]
    return [str(path) for path in files if SECRET.encode() in path.read_bytes()]


def refused(orthobench, url: str, *command: str) -> None:
    """Check that a command refuses the URL, with a traceback but without the secret."""
    done = orthobench("-v", *command, "--db", url)
    assert done.code == 2, (command, done.err)
    assert SECRET not in done.out + done.err, command
    assert done.err.splitlines()[-1].startswith("error: ")


def test_no_command_shows_the_password_of_a_server_that_refuses(orthobench, folder, tiny_options):
    pytest.importorskip("psycopg", reason="the extra orthobench[postgresql] is not installed")
    url = f"postgresql://me:{SECRET}@127.0.0.1:{free_port()}/name?password={SECRET}&sslpassword={SECRET}"
    for command in commands(tiny_options):
        if "--dry-run" not in command:
            refused(orthobench, url, *command)
    refused(orthobench, "new.db", "db", "merge", url)
    assert "***" in orthobench("ls", "--db", url).err
    assert not leaks(folder)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://me@127.0.0.1:{port}/name?password={secret}&connect_timeout=3",
        "postgresql://me@cloud:{secret}@127.0.0.1:{port}/name",
        "postgresql://me:{secret}@127.0.0.1:port/name",
        "postgresql://me:{secret}@127.0.0.1:99999/name",
        "postgresql://me@127.0.0.1:{port}/name?passwort={secret}&password={secret}",
        "postgresql://me@127.0.0.1/name?password={secret}&port=no",
        "postgresql://me:a@{secret}@127.0.0.1:{port}/name",
        "postgresql://me:a@b:{secret}@127.0.0.1:{port}/name",
        "postgresql://me:a@b/{secret}@127.0.0.1:{port}/name",
        "postgresql://me:a {secret}@127.0.0.1:{port}/name",
        "postgresql://me@127.0.0.1:{port}/name?password=a {secret}",
        "postgresql://me@127.0.0.1:{port}/name?password=a&{secret}",
        "nonsense://me:{secret}@127.0.0.1:{port}/name",
        "mysql://me:{secret}@127.0.0.1:{port}/name",
    ],
)
def test_url_that_cannot_be_opened_is_refused_without_its_password(orthobench, folder, url):
    pytest.importorskip("psycopg", reason="the extra orthobench[postgresql] is not installed")
    url = url.format(secret=SECRET, port=free_port())
    for command in (("ls",), ("db", "info"), ("db", "backup", "copy.db"), ("run", "adding", "rnn")):
        refused(orthobench, url, *command)
    assert not leaks(folder)


@pytest.mark.slow
@pytest.mark.postgresql
@pytest.mark.parametrize("kind", ["user", "query"])
def test_no_command_shows_or_stores_the_password_of_a_server(postgres, orthobench, folder, tiny_options, kind):
    if kind == "user":
        url = postgres.replace("tester@", f"tester:{SECRET}@")
    else:
        url = f"{postgres}&password={SECRET}&sslpassword={SECRET}"
    assert SECRET in url
    orthobench("run", "adding", "gru", *tiny_options, "--db", "other.db")
    done = orthobench("run", "adding", "rnn", *tiny_options, "--db", url)
    assert done.code == 0, done.err
    for command in commands(tiny_options, key=done.out.split()[1]):
        done = orthobench("-v", *command, "--db", url)
        assert done.code in (0, 1, 2, 3)
        assert SECRET not in done.out + done.err, (command, done.err)
        if command[:2] in (("db", "info"), ("db", "backup"), ("db", "merge")):
            assert done.code == 0, done.err
            assert "***" in done.out or command[1] == "merge"
    assert "failed" in orthobench("ls", "--status", "failed", "--db", url).out
    merged = orthobench("db", "merge", url, "--db", "target.db")
    assert "***" in merged.out
    assert SECRET not in merged.out + merged.err
    assert not leaks(folder)  # copy.db has every row of the server's database


def test_non_numeric_port_is_one_line(orthobench):
    done = orthobench("ls", "--db", "postgresql://me@host:54a2/name")
    assert done.code == 2
    assert done.err.startswith("error: the port in 'postgresql://...' is not a number: write ")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("results.db", "results.db"),
        ("sqlite:////tmp/a b@c:d.db", "sqlite:////tmp/a b@c:d.db"),
        ("postgresql://me@host:5432/name", "postgresql://me@host:5432/name"),
        ("postgresql://me:pw@host/name?user=a@b", "postgresql://me:***@host/name?user=a@b"),
        ("postgresql://me:@host/name", "postgresql://me:***@host/name"),
        ("postgresql://:pw@host/name", "postgresql://:***@host/name"),
        ("postgresql://me:p%40w/#?x@[::1]:1/name", "postgresql://me:***@[::1]:1/name"),
        (
            "postgresql://h/n?Password=a&sslpassword=b&sslmode=off",
            "postgresql://h/n?Password=***&sslpassword=***&sslmode=off",
        ),
        ("postgresql://h/n?passfile=/home/me/.pgpass", "postgresql://h/n?passfile=/home/me/.pgpass"),
        ("s3://key:pw@bucket/folder", "s3://key:***@bucket/folder"),
        ("from a://b:c@d/x to e://f:g@h?token=i and on", "from a://b:***@d/x to e://f:***@h?token=*** and on"),
        ("ray://127.0.0.1:10001: no answer, ask me@home", "ray://127.0.0.1:10001: no answer, ask me@home"),
    ],
)
def test_text_is_shown_without_passwords(location, shown):
    assert without_passwords(location) == shown
    assert without_passwords(shown) == shown


@pytest.mark.parametrize("password", ["a%40b", "a%2Fb%3Ac%26d%3F", "a:b", "a/b", "a?b", "a#b", "%20"])
def test_masked_password_is_the_one_in_use(password):
    """SQLAlchemy decodes the URL: what it calls password is what is masked, and the rest is the same."""
    location = Location(f"postgresql://me:{password}@host:5432/name")
    assert str(location) == "postgresql://me:***@host:5432/name"
    assert location.url.render_as_string(hide_password=True) == f"postgresql+psycopg{str(location)[10:]}"
    assert location.url.set(password="***") == Location(str(location)).url
    assert location.url.password


def test_errors_and_jobs_hold_no_password(tiny):
    url = f"postgresql://me:{SECRET}@host/name"
    assert str(UsageError(f"{url} is away")) == "postgresql://me:***@host/name is away"
    assert SECRET not in repr(OrthobenchError(url).args)
    spec = resolve(Catalog(), "adding", "rnn", tiny).spec
    assert SECRET not in repr(Job(spec, "rnn", Location(url)))


@pytest.mark.parametrize(
    ("real", "shown"),
    [
        ("results.db", "results.db"),
        ("a b/ü?token=x.db", "a b/ü?token=x.db"),  # a file
        (f"postgresql://me:a {SECRET}@host/name", "postgresql://me:***@host/name"),
        (f"postgresql://me:a\t@{SECRET}@host/name", "postgresql://me:***@host/name"),
        (f"postgresql://me@host/name?password=a {SECRET}", "postgresql://me@host/name?password=***"),
        ("s3://bucket/a b@2", "s3://bucket/a b@2"),
        (f"s3://key:a/b+{SECRET}=@bucket/a?token={SECRET}&x=1", "s3://key:***@bucket/a?token=***&x=1"),
    ],
)
def test_text_of_a_location_hides_its_passwords(real, shown):
    location = Location(real)
    assert (str(location), f"{location}", repr(location)) == (shown, shown, f"Location({shown!r})")
    assert location.real == pickle.loads(pickle.dumps(location)).real == real
    assert Location.of(location) is location
    assert Location.of(real) == location != Location(shown + "x")


def test_records_with_locations_show_no_password():
    url = f"s3://key:{SECRET}@bucket/w?token={SECRET}"
    options = RunOptions(weights=url, checkpoints=Location(url))
    folder = weights_folder(Location(f"postgresql://me:{SECRET}@host/name"), options.weights)
    target = Target("mlflow", Location(f"https://me:{SECRET}@host:5000"))
    for record in (options, folder, target, WeightsFolder(Location(url)), folder.recorded("best.safetensors")):
        assert SECRET not in f"{record} {record!r}"
    assert folder.root.real == url
    assert str(target) == "mlflow:https://me:***@host:5000"


ODD = """from torch import nn

class Odd(nn.GRU):
    def forward(self, *inputs):
        if self.training:
            secret = "SECRET"[::-1]
            raise ERROR(f"odd http://u:{secret}@h/\\nsecond http://u:{secret}@h/")
        return super().forward(*inputs)
"""


@pytest.mark.parametrize("error", ["BaseException", "SystemExit", "GeneratorExit", "ValueError"])
@pytest.mark.parametrize("command", ["run", "sweep"])
def test_no_error_of_a_layer_shows_a_password(orthobench, tmp_path, tiny_options, error, command):
    (tmp_path / "odd.py").write_text(ODD.replace("ERROR", error).replace("SECRET", SECRET[::-1]))
    words = ("run", "adding", "./odd.py:Odd") if command == "run" else ("sweep", "adding", "--models", "./odd.py:Odd")
    for verbose in ((), ("-v",)):
        done = orthobench(*verbose, *words, *tiny_options)
        assert done.code == 1
        assert SECRET not in done.out + done.err
        assert f"{error}: odd http://u:***@h/" in done.out + done.err
        assert ("Traceback" in done.err) == bool(verbose)
    assert SECRET.encode() not in (tmp_path / "results.db").read_bytes()
