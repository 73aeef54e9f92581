"""A script without `if __name__ == "__main__"` is run once, whatever processes orthobench starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

POOL = """
from concurrent.futures import ProcessPoolExecutor
from orthobench.system.spawn import Spawning
with ProcessPoolExecutor(1, Spawning()) as pool:
    print(pool.submit(abs, -3).result(), __file__.endswith("script.py"))
"""
PROFILE = """
import orthobench as ob
small = {"sequence_length": 10, "train_size": 40, "test_size": 20, "batch_size": 10, "epochs": 1, "hidden_size": 8}
(estimate,) = ob.sweep("adding", ["rnn"], settings=small, dry_run=True).plan.estimates.values()
print(estimate.source)
"""
SPEECH = """
from pathlib import Path
import numpy as np
from orthobench.data.speech.quality import quality_of_predictions
from orthobench.data.speech.spectra import log_magnitude, stft
from orthobench.data.speech.audio_files import read_audio
from scipy.io import wavfile
wavfile.write("a.wav", 8000, (3000 * np.sin(np.arange(16000) ** 1.5 / 99)).astype(np.int16))
means = quality_of_predictions([Path("a.wav")], [log_magnitude(stft(read_audio(Path("a.wav"))))[1:]], lambda *_: None)
print(means["segsnr_db"] > 0)
"""


@pytest.mark.parametrize(
    ("script", "printed"),
    [
        (POOL, "3 True"),
        pytest.param(PROFILE, "3 steps tried", marks=pytest.mark.slow),
        pytest.param(SPEECH, "True", marks=pytest.mark.slow),
    ],
)
def test_a_script_is_run_once(tmp_path, script, printed):
    file = Path(tmp_path, "script.py")
    file.write_text("print('begins')\n" + script)
    done = subprocess.run([sys.executable, file], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"begins\n{printed}\n", "")
