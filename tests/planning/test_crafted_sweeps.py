"""Values from elsewhere beyond all reason: each ends in one line."""

from __future__ import annotations

import pytest

from orthobench.errors import UsageError
from orthobench.executors.slurm_settings import SlurmSettings, read_settings
from orthobench.planning.file import SweepFile, read_file
from orthobench.planning.grid import parse_axis
from orthobench.plugins import Catalog


@pytest.mark.parametrize("text", ["a = " + "[" * 5000, "a = " + "{b=" * 5000, "seeds = " + "9" * 5000])
def test_oversized_sweep_file_is_refused(tmp_path, text):
    file = tmp_path / "sweep.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match="is not TOML"):
        read_file(file, SweepFile)


@pytest.mark.parametrize(
    "values", ["1..1e9999999999999999999:x2", "1e-9999999999999999999..1:x2", "1..2:+1e999", f"1..{'9' * 500}:x2"]
)
def test_oversized_range_is_refused(values):
    with pytest.raises(UsageError, match="has a number beyond 1e-400 to 1e400"):
        parse_axis("hidden_size", values)


@pytest.mark.parametrize("options", [{"comment": "x\ntouch PWN\n#"}, {"a\rb": "x"}, {"comment": "x\0"}])
def test_slurm_options_with_control_characters_are_refused(options):
    with pytest.raises(UsageError, match="has a control character"):
        SlurmSettings(options)


def test_slurm_file_with_control_characters_is_refused(tmp_path):
    file = tmp_path / "slurm.toml"
    file.write_text('comment = "x\\ntouch PWN"')
    with pytest.raises(UsageError, match="has a control character"):
        read_settings([str(file)])


@pytest.mark.parametrize("what", ["GeneratorExit", "type('Own', (BaseException,), {})", "SystemExit"])
def test_plugin_that_raises_any_exception_is_one_line(tmp_path, what):
    file = tmp_path / "odd.py"
    file.write_text(f"raise {what}('odd')")
    with pytest.raises(UsageError, match=r"plugin file .*odd"):
        Catalog([file])


@pytest.mark.parametrize("rate", [1, 2_147_483_647])
def test_recording_with_an_absurd_rate_is_refused(tmp_path, rate):
    import wave

    from orthobench.data.speech.audio_files import read_audio

    with wave.open(str(tmp_path / "odd.wav"), "wb") as file:
        file.setparams((1, 2, min(rate, 2_000_000_000), 0, "NONE", ""))
        file.writeframes(b"\0\0" * 500)
    with pytest.raises(UsageError, match="samples per second, beyond 1000 to 768000"):
        read_audio(tmp_path / "odd.wav")
