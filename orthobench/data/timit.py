"""TIMIT: the corpus, its public sample and other folders of speech, split into training and test speakers.

Garofolo et al., "TIMIT Acoustic-Phonetic Continuous Speech Corpus", LDC93S1, 1993. The two dialect sentences of every
speaker (SA1, SA2) are left out, so each speaker has eight sentences, three SI and five SX.
"""

from __future__ import annotations

import hashlib
import re
from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, ClassVar

from orthobench.data.archives import copy_member, is_archive, members
from orthobench.data.checksums import files_md5
from orthobench.data.dataset import DataSet
from orthobench.data.download import Download
from orthobench.data.speech import require_audio
from orthobench.data.speech.audio_files import sample_count
from orthobench.errors import UsageError
from orthobench.system.visible_files import visible_files

SENTENCES = 8
_CORE_TEST = """
    mdab0 mwbt0 felc0 mtas1 mwew0 fpas0 mjmp0 mlnt0 fpkt0 mlll0 mtls0 fjlm0
    mbpm0 mklt0 fnlp0 mcmj0 mjdh0 fmgd0 mgrt0 mnjm0 fdhc0 mjln0 mpam0 fmld0
"""
_VALIDATION = """
    faks0 fdac1 fjem0 mgwt0 mjar0 mmdb1 mmdm2 mpdf0 fcmh0 fkms0 mbdg0 mbwm0 mcsh0 fadg0 fdms0 fedw0 mgjf0
    mglb0 mrtk0 mtaa0 mtdt0 mthc0 mwjg0 fnmr0 frew0 fsem0 mbns0 mmjr0 mdls0 mdlf0 mdvc0 mers0 fmah0 fdrw0
    mrcs0 mrjm4 fcal1 mmwh0 fjsj0 majc0 mjsw0 mreb0 fgjd0 fjmg0 mroa0 mteb0 mjfc0 mrjr0 fmml0 mrws1
"""
CORE_TEST = frozenset(_CORE_TEST.split())
"""The 24 speakers of the corpus's core test set."""
VALIDATION = frozenset(_VALIDATION.split())
"""50 more speakers of the test folder: the validation set of the literature."""


@dataclass(frozen=True)
class Speech:
    """Files by their use. The longest file of `held_out` sets the length of validation and test data."""

    train: tuple[Path, ...]
    validation: tuple[Path, ...]
    test: tuple[Path, ...]
    held_out: tuple[Path, ...]


class SpeechSet(DataSet):
    """Base of the corpus and the sample: files `*/SPEAKER/SENTENCE.wav` in lower case, at any depth of the source."""

    files: ClassVar = {}
    pattern: ClassVar[re.Pattern[str]]
    """The pattern of a file's path in lower case; the matching part is the path in the data folder."""
    speakers: ClassVar[dict[str, int]]
    """The number of speakers by the prefix of their files' paths."""

    def present(self) -> bool:
        return self.folder().is_dir()

    def check_packages(self) -> None:
        require_audio()

    def gather(self, path: Path, into: Path) -> None:
        matches = 0
        for name, stream in _contents(path):
            with stream:
                if match := self.pattern.search(name.lower()):
                    matches += 1
                    target = into / match.group()
                    target.parent.mkdir(parents=True, exist_ok=True)
                    copy_member(stream, target, f"{name} in {path}")
        if not matches:
            raise UsageError(f"{path} holds no files of {self.title}: name the folder that contains the original files")

    def faults(self, folder: Path) -> list[str]:
        sentences = Counter(file.parent.relative_to(folder).as_posix() for file in folder.rglob("*.wav"))
        problems = [
            f"{speaker} has {count} of {SENTENCES} sentences"
            for speaker, count in sorted(sentences.items())
            if count != SENTENCES
        ]
        for part, expected in self.speakers.items():
            count = sum(speaker.startswith(part) for speaker in sentences)
            if count != expected:
                problems.append(f"{count} of {expected} speakers{f' in {part}' if part else ''}")
        for file in sorted(folder.rglob("*.wav")):
            try:
                sample_count(file)
            except UsageError as error:
                problems.append(str(error))
        return problems if len(problems) <= 5 else [*problems[:5], f"and {len(problems) - 5} more"]

    def speech(self) -> Speech:
        """Return the files for training, validation and tests.

        Raises:
            UsageError: the data set is missing.
        """
        files = sorted(self.require().rglob("*.wav"))
        return self.split(files)

    @abstractmethod
    def split(self, files: list[Path]) -> Speech:
        """Split the sorted files by speaker into training, validation and test files."""


class TimitCorpus(SpeechSet):
    name = "timit"
    title = "TIMIT"
    licence = "of the Linguistic Data Consortium, for members or a fee"
    home = "https://catalog.ldc.upenn.edu/LDC93S1"
    size = 500_000_000
    pattern = re.compile(r"(train|test)/dr[1-8]/[fm][a-z]{3}\d/s[ix]\d+\.wav$")
    speakers: ClassVar = {"train/": 462, "test/": 168}

    def split(self, files: list[Path]) -> Speech:
        """Split by folder and speaker list: 462 speakers for training, 50 for validation, 24 for tests.

        They have 3696, 400 and 192 files. Other sources give other numbers (D-17) and another validation set (D-20).
        """
        trained = tuple(file for file in files if file.parts[-4] == "train")
        held_out = tuple(file for file in files if file.parts[-4] == "test")
        validation, test = (
            tuple(file for file in held_out if file.parent.name in speakers) for speakers in (VALIDATION, CORE_TEST)
        )
        return Speech(trained, validation, test, held_out)


class TimitSample(SpeechSet):
    name = "timit_sample"
    title = "TIMIT's public sample"
    licence = "CC BY-NC-SA"
    home = "https://www.nltk.org/nltk_data/"
    size = 13_000_000
    downloads = (
        Download(
            "timit.zip",
            ("https://raw.githubusercontent.com/nltk/nltk_data/gh-pages/packages/corpora/timit.zip",),
            "34c047c4749a811287f2c652104d7849",
            22_251_869,
        ),
    )
    pattern = re.compile(r"dr[1-8]-[fm][a-z]{3}\d/s[ix]\d+\.wav$")
    speakers: ClassVar = {"": 16}

    def split(self, files: list[Path]) -> Speech:
        """Split by dialect region: regions 1 to 5 for training, 6 for validation, 7 and 8 for tests (80, 16, 32 files).

        Each of the eight regions has a woman and a man. The parts share neither sentences nor speakers. All 16 are
        training speakers of the corpus.
        """
        region: dict[int, list[Path]] = defaultdict(list)
        for file in files:
            region[int(file.parent.name[2])].append(file)
        trained = tuple(file for number in range(1, 6) for file in region[number])
        validation, test = tuple(region[6]), tuple(region[7] + region[8])
        return Speech(trained, validation, test, validation + test)


def speech_folder(folder: Path) -> Speech:
    """Split the WAV and FLAC files below a folder: a tenth for tests, a tenth for validation, the rest for training.

    The files of a subfolder count as one speaker and stay together; with fewer than three subfolders each file counts
    separately. The order is given by the SHA-256 of the relative paths, so the same files are split alike on every
    machine, and adding a file moves few others.

    Raises:
        UsageError: the folder does not exist, cannot be read, or has fewer than three files.
    """
    files = _recordings(folder)
    if len(files) < 3:
        raise UsageError(f"{folder} has {len(files)} WAV or FLAC files: three parts need three or more")
    by_file = len({file.parent for file in files}) < 3
    groups: dict[str, list[Path]] = defaultdict(list)
    for file in files:
        groups[(file if by_file else file.parent).relative_to(folder).as_posix()].append(file)
    order = sorted(groups, key=lambda name: hashlib.sha256(name.encode()).digest())
    share = max(1, round(len(order) / 10))
    test, validation, trained = (
        tuple(file for name in names for file in groups[name])
        for names in (order[:share], order[share : 2 * share], order[2 * share :])
    )
    return Speech(trained, validation, test, validation + test)


def speech_md5(folder: Path) -> str:
    """Return the MD5 of the WAV and FLAC files below a folder: of their relative paths and their contents.

    Raises:
        UsageError: the folder does not exist, or a file cannot be read.
    """
    return files_md5(folder, _recordings(folder))


def _recordings(folder: Path) -> list[Path]:
    return sorted(file for file in visible_files(folder) if file.suffix.lower() in (".wav", ".flac"))


def _contents(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the path and open stream of each file at a path, also inside archives; the caller closes it."""
    files = [path] if path.is_file() else sorted(visible_files(path.resolve()))
    for file in files:
        if is_archive(file):
            yield from members(file)
        else:
            yield file.as_posix(), file.open("rb")
