"""Code from outside of orthobench has an identity: its text is hashed, recorded and carried to every worker."""

from __future__ import annotations

import hashlib
import json
import pickle
import shlex
from pathlib import Path

import pytest
from sqlalchemy import select
from support.third_party import forget, installed

from orthobench.errors import UsageError
from orthobench.executors.job import Ending, Job, attempt
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.store import open_store
from orthobench.store.tables import Source
from orthobench.system.location import Location
from orthobench.testing import problems
from orthobench.training.events import EventSink

HELPER = "GAIN = 0.5\n"
MODEL = """
import torch
from torch import nn
from orthobench.models.rnn import RNN
from gains import GAIN

class Mine(RNN):
    title = "mine"

    def __init__(self, settings, signature, generator):
        super().__init__(settings, signature, generator)
        with torch.no_grad():
            self.recurrent_weight.mul_(GAIN)
"""


@pytest.fixture
def newcomer(tmp_path, monkeypatch):
    with installed(tmp_path / "site", monkeypatch) as package:
        yield package


@pytest.fixture
def plugin_file(tmp_path) -> Path:
    """A plugin file with a module next to it."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "gains.py").write_text(HELPER)
    file = tmp_path / "lib" / "mine.py"
    file.write_text(MODEL)
    return file


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text("utf-8")
    assert old in text
    file.write_text(text.replace(old, new), "utf-8")


@pytest.mark.usefixtures("newcomer")
@pytest.mark.parametrize(
    ("kind", "name"), [("model", "leaky"), ("model", "looped"), ("task", "modular_sum"), ("probe", "activity")]
)
def test_plugins_of_a_new_package_meet_the_contract(kind, name):
    assert problems(kind, Catalog().load(kind, name)) == []


def test_edited_installed_package_makes_its_results_stale(orthobench, newcomer, tiny_options, tmp_path):
    options = [*tiny_options, "-s", "modulus=3", "-s", "probes=activity"]
    command = ("sweep", "modular_sum", "--models", "leaky,looped,rnn", *options)
    assert orthobench(*command).code == 0
    assert "3 finished" in orthobench(*command, "--dry-run").out
    with open_store(str(tmp_path / "results.db")) as store:
        runs = {run.model: run for run in store.runs()}
    (plugin,) = runs["leaky"].environment.facts["plugins"]
    assert (plugin["distribution"], plugin["version"]) == ("newcomer", "1.0")
    assert {*plugin["files"]} == {f"newcomer/{name}.py" for name in ("__init__", "models", "probes", "starts", "tasks")}
    assert {runs[model].spec["task_version"] for model in runs} == {f"1+{plugin['revision']}"}
    assert runs["leaky"].spec["model_version"] == f"1+{plugin['revision']}.2"
    assert runs["rnn"].spec["model_version"] == "1"

    edit(newcomer / "starts.py", "0.1", "0.2")
    forget()
    edited = orthobench(*command, "--dry-run", "--no-profile").out
    assert "3 stale" in edited
    assert "version of modular_sum 1+" in edited


def test_code_in_memory_keeps_its_hash_when_its_file_is_edited(newcomer, tiny):
    before = resolve(Catalog(), "adding", "leaky", tiny).spec
    edit(newcomer / "starts.py", "0.1", "0.2")
    assert resolve(Catalog(), "adding", "leaky", tiny).spec == before
    forget()
    assert resolve(Catalog(), "adding", "leaky", tiny).spec.model_version != before.model_version


def test_editable_project_is_hashed(newcomer, tiny):
    """Its list of files has no modules."""
    information = next(newcomer.parent.glob("*.dist-info"))
    (information / "direct_url.json").write_text('{"url": "file:///here", "dir_info": {"editable": true}}')
    config = resolve(Catalog(), "modular_sum", "leaky", tiny)
    (sources,) = config.sources
    assert {*sources.contents} == {
        f"newcomer/{name}.py" for name in ("__init__", "models", "probes", "starts", "tasks")
    }
    edit(newcomer / "starts.py", "0.1", "0.2")
    forget()
    assert resolve(Catalog(), "modular_sum", "leaky", tiny).spec.key != config.spec.key


def test_plugin_file_imports_modules_next_to_it(plugin_file, tiny):
    """The helper's number is in the weights: an edit is another run, and the run has the new number."""
    import torch

    from orthobench.model import Signature

    def largest() -> tuple[str, float]:
        config = resolve(Catalog([plugin_file]), "adding", "mine", tiny)
        model = config.model_class(config.model_settings, Signature(2, 1, "last"), torch.Generator().manual_seed(1))
        return config.spec.key, float(model.recurrent_weight.detach().abs().max())  # type: ignore[operator]

    first_key, first = largest()
    (plugin_file.parent / "gains.py").write_text(HELPER.replace("0.5", "2.0"))
    second_key, second = largest()
    assert first_key != second_key
    assert second == pytest.approx(4 * first)


def test_package_next_to_a_plugin_file_is_hashed_with_all_modules(plugin_file, tiny):
    package = plugin_file.parent / "gains"
    (plugin_file.parent / "gains.py").unlink()
    package.mkdir()
    (package / "__init__.py").write_text("from .numbers import GAIN\n")
    (package / "numbers.py").write_text("GAIN = 0.5\n")
    first = resolve(Catalog([plugin_file]), "adding", "mine", tiny)
    assert {*first.sources[0].contents} == {"mine.py", "gains/__init__.py", "gains/numbers.py"}
    (package / "numbers.py").write_text("GAIN = 0.7\n")
    assert resolve(Catalog([plugin_file]), "adding", "mine", tiny).spec.key != first.spec.key


def test_revision_of_a_file_without_own_imports_is_its_hash(tmp_path, tiny):
    """The first 8 digits of the file's SHA-256, by `sha256sum`."""
    file = tmp_path / "plain.py"
    file.write_text("from orthobench.models.rnn import RNN\nclass Plain(RNN):\n    title = 'plain'\n")
    assert resolve(Catalog([file]), "adding", "plain", tiny).spec.model_version == "1+7f90fc37.2"


def test_module_both_next_to_the_file_and_elsewhere_is_refused(plugin_file, tmp_path, monkeypatch):
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "gains.py").write_text(HELPER)
    monkeypatch.syspath_prepend(other)
    with pytest.raises(UsageError, match=r"mine.py imports gains, which is both next to it and in .*elsewhere"):
        Catalog([plugin_file])


def test_two_files_with_different_modules_of_one_name_are_refused(plugin_file, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "gains.py").write_text("GAIN = 3\n")
    second = tmp_path / "other" / "yours.py"
    second.write_text(MODEL)
    with pytest.raises(UsageError, match="import different modules of the name gains: rename one of the two"):
        Catalog([plugin_file, second])


def test_worker_receives_the_text_of_the_plugin(plugin_file, tmp_path, tiny):
    """Another machine has no such files; and an edit while a sweep runs does not change its later runs."""
    config = resolve(Catalog([plugin_file]), "adding", "mine", tiny)
    job = Job(config.spec, "a", Location(str(tmp_path / "r.db")), plugins=config.catalog.files, config=config)
    job = pickle.loads(pickle.dumps(job))
    assert job.config is None
    for file in (plugin_file, plugin_file.parent / "gains.py"):
        file.unlink()
    assert attempt(job, EventSink()).ending == Ending.FINISHED
    with open_store(job.database) as store:
        (run,) = store.runs()
    assert run.key == config.spec.key
    (plugin,) = run.environment.facts["plugins"]
    assert (plugin["path"], {*plugin["files"]}) == (str(plugin_file), {"mine.py", "gains.py"})


def test_worker_with_another_package_refuses(newcomer, tmp_path, tiny):
    config = resolve(Catalog(), "adding", "leaky", tiny)
    edit(newcomer / "starts.py", "0.1", "0.2")
    forget()
    job = Job(config.spec, "a", Location(str(tmp_path / "r.db")))
    outcome = attempt(job, EventSink())
    assert outcome.ending == Ending.REFUSED
    assert "use the same code everywhere" in outcome.cause


def test_command_of_a_run_names_its_plugin_file(orthobench, plugin_file, tmp_path, tiny_options):
    assert orthobench("run", "adding", "mine", "--plugin", "lib/mine.py", *tiny_options).code == 0
    (run,) = json.loads(orthobench("ls", "--json").out)
    shown = json.loads(orthobench("show", run["run"], "--json").out)
    words = shlex.split(shown["reproduce"])
    assert words[-2:] == ["--plugin", "lib/mine.py"]
    again = orthobench(*words[1:])
    assert again.code == 0
    assert len(json.loads(orthobench("ls", "--json").out)) == 1


def test_plugin_text_is_stored_once_and_reproduces_the_run(orthobench, plugin_file, tmp_path, tiny_options):
    for seed in ("0", "1"):
        run = orthobench("run", "adding", "mine", "--plugin", "lib/mine.py", "--seed", seed, *tiny_options)
        assert run.code == 0
    (plugin_file.parent / "gains.py").write_text("GAIN = 0.7\n")
    assert orthobench("run", "adding", "mine", "--plugin", "lib/mine.py", *tiny_options).code == 0
    with open_store(str(tmp_path / "results.db")) as store:
        runs = store.runs()
        with store.engine.connect() as connection:
            stored = {digest: content for _, digest, content in connection.execute(select(Source.__table__))}
    assert {*stored.values()} == {MODEL.encode(), HELPER.encode(), b"GAIN = 0.7\n"}
    assert all(hashlib.sha256(content).hexdigest() == digest for digest, content in stored.items())

    saved = orthobench("show", runs[0].key, "--save-plugins", "old")
    assert saved.out.split() == ["old/mine.py", "old/gains.py"]
    assert (tmp_path / "old" / "gains.py").read_text() == HELPER
    again = resolve(Catalog([tmp_path / "old" / "mine.py"]), "adding", "mine", read_options(tiny_options))
    assert again.spec.key == runs[0].key

    (tmp_path / "old" / "gains.py").write_text("# mine\n")
    refused = orthobench("show", runs[0].key, "--save-plugins", "old")
    assert refused.code == 2
    assert "gains.py exists with another content and is left as it is" in refused.err
    refused = orthobench("show", runs[0].key, "--save-plugins", "mine.copy.py")
    assert refused.code == 2
    assert "name a folder, such as mine.copy" in refused.err


def test_merge_includes_the_text(orthobench, plugin_file, tmp_path, tiny_options):
    command = ("run", "adding", "mine", "--plugin", "lib/mine.py", *tiny_options)
    assert orthobench(*command, "--db", "there.db").code == 0
    for _ in range(2):
        assert orthobench("db", "merge", "there.db", "--db", "here.db").code == 0
    with open_store(str(tmp_path / "here.db")) as store:
        (plugin,) = store.runs()[0].environment.facts["plugins"]
        assert {*store.sources(list(plugin["files"].values())).values()} == {MODEL.encode(), HELPER.encode()}


def read_options(options: list[str]) -> dict[str, str]:
    return dict(option.split("=") for option in options[1::2])


BASELINE = """
[[run]]
task = "adding"
model = "rnn"
seeds = [0, 1, 2]
settings = { SETTINGS, probes = "activity" }
[run.metrics.mse]
direction = "min"
allowed_loss = 10.0
"""


def test_check_refuses_runs_of_an_edited_probe(orthobench, newcomer, tmp_path, tiny):
    """A probe is not part of a run's key: the comparison of code finds its edit."""
    settings = ", ".join(f"{name} = {value}" for name, value in tiny.items())
    (tmp_path / "base.toml").write_text(BASELINE.replace("SETTINGS", settings))
    check = ("check", "base.toml", "--db", "runs.db")
    assert orthobench(*check, "--update", "--reason", "new").code == 0
    assert orthobench(*check).code == 0
    edit(newcomer / "probes.py", "h.abs()", "h.square()")
    forget()
    assert "by other code or versions" in orthobench(*check).out


def test_runs_of_built_in_plugins_have_no_sources(tiny):
    config = resolve(Catalog(), "adding", "rnn", tiny)
    assert (config.sources, config.catalog.files) == ((), ())
    assert (config.spec.task_version, config.spec.model_version) == ("1", "1")
