"""The index describes the built-in plugins, and is known without torch."""

from __future__ import annotations

import subprocess
import sys

from orthobench.plugins import Catalog
from orthobench.settings import describe_settings
from orthobench.spec.index import built_in
from orthobench.task import TrainingSettings


def test_index_is_known_without_torch():
    code = "import sys; from orthobench.spec.index import built_in; print(*built_in(), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "plugins training variants specs False\n"


def test_index_describes_every_built_in_plugin():
    expected = built_in()
    assert expected["plugins"].keys() == {f"{plugin.kind}/{plugin.name}" for plugin in Catalog()}
    for plugin in Catalog():
        cls, described = plugin.load(), expected["plugins"][f"{plugin.kind}/{plugin.name}"]
        assert (described["title"], described["problem"]) == (cls.title, None)
        if plugin.kind != "probe":
            assert [setting["name"] for setting in described["settings"]] == list(cls.Settings.model_fields)
    assert [setting["name"] for setting in expected["training"]] == list(TrainingSettings.model_fields)


def test_choices_of_a_setting_are_accepted():
    settings = Catalog().load("model", "scornn").Settings
    choices = {setting.name: setting.choices for setting in describe_settings(settings)}
    assert choices["activation"] == ["modrelu", "relu", "tanh"]
    assert choices["block_norm"] == ["layer", "batch"]
    assert choices["hidden_size"] == []
    assert {s.name: s.choices for s in describe_settings(TrainingSettings)}["shuffle"] == ["true", "false"]
