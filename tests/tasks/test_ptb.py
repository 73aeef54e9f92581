"""Characters: the inputs, the targets, their order, and the errors for unusable texts."""

from __future__ import annotations

import hashlib
import math
from collections import Counter

import pytest
import torch

from orthobench.errors import UsageError
from orthobench.tasks.ptb import PTB, PTBSettings, SymbolText
from orthobench.testing import problems

CPU = torch.device("cpu")
LETTERS = "the quick brown fox jumps over the lazy dog;\n"
TEXT = "".join(LETTERS[(i * i + 3 * i // 7) % len(LETTERS)] for i in range(1000))
ALPHABET = sorted(set(TEXT))


@pytest.fixture
def write(tmp_path):
    def write(content: str | bytes = TEXT) -> str:
        path = tmp_path / "text.txt"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return write


@pytest.fixture
def task(write):
    return PTB(PTBSettings.read({"text": write(), "unroll_length": 7}), 0, CPU)


def spell(one_hot):
    """The characters of one-hot inputs `[T, B, m]` or targets `[T, B]`, a string a column."""
    numbers = one_hot.argmax(-1) if one_hot.dim() == 3 else one_hot
    return ["".join(ALPHABET[k] for k in column) for column in numbers.T.tolist()]


def read(stream, columns):
    batches = [stream.piece(k, columns) for k in range(stream.pieces(columns))]
    return [torch.cat(parts) for parts in zip(*((batch.inputs, batch.targets) for batch in batches), strict=True)]


def test_text_is_split_90_5_5_and_the_alphabet_covers_all_of_it(task):
    assert [len(split.characters) for split in (task.train, task.validation, task.test)] == [900, 50, 50]
    assert task.signature.input_size == task.signature.output_size == len(ALPHABET)
    for split, part in ((task.train, TEXT[:900]), (task.validation, TEXT[900:950]), (task.test, TEXT[950:])):
        inputs, targets = read(split, 1)
        assert (inputs.sum(-1) == 1).all()
        assert set(inputs.unique().tolist()) == {0, 1}
        assert spell(inputs) == [part[:-1]]
        assert spell(targets) == [part[1:]]


@pytest.mark.parametrize("columns", [1, 2, 3, 8, 10, 31])
def test_columns_divide_the_text_and_are_read_downwards(columns, task):
    inputs, targets = read(task.train, columns)
    steps = 899 // columns
    assert len(inputs) == steps
    assert spell(inputs) == [TEXT[k * steps : (k + 1) * steps] for k in range(columns)]
    assert spell(targets) == [TEXT[k * steps + 1 : (k + 1) * steps + 1] for k in range(columns)]
    lengths = [len(task.train.piece(k, columns).inputs) for k in range(task.train.pieces(columns))]
    assert lengths == [7] * (steps // 7) + [steps % 7] * (steps % 7 > 0)


def test_example_is_a_numbered_piece(task):
    assert len(task.train) == 899 // 7
    batch = task.train.batch(torch.tensor([5, 0, 127]))
    assert spell(batch.inputs) == [TEXT[35:42], TEXT[:7], TEXT[889:896]]
    assert spell(batch.targets) == [TEXT[36:43], TEXT[1:8], TEXT[890:897]]


def test_bits_per_character_are_minus_log2_of_the_probability(task):
    batch = task.test.piece(0, 3)
    outputs = torch.randn(7, 3, len(ALPHABET), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    probability = outputs.exp() / outputs.exp().sum(-1, keepdim=True)
    bits = hits = 0.0
    for t in range(7):
        for b in range(3):
            bits -= math.log2(probability[t, b, batch.targets[t, b]])
            hits += probability[t, b].max() == probability[t, b, batch.targets[t, b]]
    measured = task.measure(outputs, batch.targets)
    assert float(measured["bpc"][0]) == pytest.approx(bits, rel=1e-12)
    assert (float(measured["accuracy"][0]), measured["accuracy"][1]) == (hits, 21)
    assert task.loss(outputs, batch.targets).item() == pytest.approx(bits / 21 * math.log(2), rel=1e-12)


def test_baseline_is_the_entropy_of_the_test_characters(task, write):
    counts = Counter(TEXT[950:])
    entropy = -sum(count / 50 * math.log2(count / 50) for count in counts.values())
    baselines = PTB.baselines(PTBSettings.read({"text": write()}))
    assert baselines == pytest.approx({"bpc": entropy, "accuracy": max(counts.values()) / 50}, rel=1e-12)


def test_real_penn_treebank_has_its_published_counts(real_data):
    real_data("ptb")
    task = PTB(PTBSettings(), 0, CPU)
    sizes = [len(split.characters) for split in (task.train, task.validation, task.test)]
    assert sizes == [5_017_482, 393_042, 442_423]
    assert {split.characters.dtype for split in (task.train, task.validation, task.test)} == {torch.uint8}
    assert (task.signature.input_size, task.signature.output_size) == (50, 50)
    assert task.train.pieces(128) == math.ceil((5_017_481 // 128) / 150) == 262
    batch = task.train.batch(torch.arange(2))
    assert batch.inputs.shape == (150, 2, 50)
    # 4.3446 bits: counted from the file with collections.Counter.
    assert PTB.baselines(PTBSettings())["bpc"] == pytest.approx(4.344620563, abs=1e-8)


@pytest.mark.parametrize("count", [256, 257, 20_000])
def test_alphabet_uses_the_smallest_integer_type(count, write):
    text = "".join(chr(0x4E00 + k) for k in range(count)) * 2
    task = PTB(PTBSettings.read({"text": write(text), "unroll_length": 3}), 0, CPU)
    assert task.train.characters.dtype == (torch.uint8 if count == 256 else torch.int32)
    batch = task.train.batch(torch.tensor([80]))
    assert batch.inputs.shape == (3, 1, count)
    assert batch.inputs.argmax(-1).flatten().tolist() == [240, 241, 242]
    assert batch.targets.flatten().tolist() == [241, 242, 243]


def test_another_text_is_another_run(write):
    path = write()
    first = PTBSettings.read({"text": path})
    assert first.text == path
    assert first.text_md5 == hashlib.md5(TEXT.encode()).hexdigest()
    assert PTBSettings.read({name: str(value) for name, value in first.model_dump().items()}) == first
    write(TEXT + "!")
    assert PTBSettings.read({"text": path}) != first
    with pytest.raises(UsageError, match="has changed: its checksum is"):
        PTBSettings.read(first.model_dump())


@pytest.mark.parametrize("none", [{}, {"text": None}, {"text": "none", "text_md5": "none"}])
def test_setting_without_a_text_is_penn_treebank(none):
    assert PTBSettings.read(none) == PTBSettings(unroll_length=150, text=None, text_md5=None)


def test_missing_penn_treebank_names_its_command(tmp_path, monkeypatch):
    monkeypatch.setenv("ORTHOBENCH_DATA", str(tmp_path))
    with pytest.raises(UsageError, match="ptb is not installed: orthobench data get ptb"):
        PTB(PTBSettings(), 0, CPU)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "text.txt is empty: give a file with text in it"),
        (b"abc\xff\xfe", r"text.txt is not UTF-8 text \(byte 4\): convert it"),
        ("caf\u00e9".encode("utf-16"), "text.txt is not UTF-8 text but UTF-16 or binary: convert it"),
        ("plain".encode("utf-16-le"), "text.txt is not UTF-8 text but UTF-16 or binary: convert it"),
        (b"\xef\xbb\xbf", "text.txt is empty: give a file with text in it"),
    ],
)
def test_broken_text_is_named(content, message, write):
    with pytest.raises(UsageError, match=message):
        PTB(PTBSettings.read({"text": write(content)}), 0, CPU)


@pytest.mark.parametrize(
    "written",
    [
        b"\xef\xbb\xbf" + TEXT.encode(),
        TEXT.replace("\n", "\r\n").encode(),
        TEXT.replace("\n", "\r").encode(),
        b"\xef\xbb\xbf" + TEXT.replace("\n", "\r\n").encode(),
    ],
    ids=["byte-order mark", "CRLF", "CR", "both"],
)
def test_text_written_by_another_system_is_the_same_text(written, write):
    """Its runs have another version, because earlier ones had more symbols."""
    plain = PTBSettings.read({"text": write(), "unroll_length": 7})
    expected, baseline = PTB(plain, 0, CPU), PTB.baselines(plain)
    assert PTB.version_of(plain) == PTB.version
    settings = PTBSettings.read({"text": write(written), "unroll_length": 7})
    task = PTB(settings, 0, CPU)
    assert (task.signature, PTB.baselines(settings)) == (expected.signature, baseline)
    for part, same in ((task.train, expected.train), (task.test, expected.test)):
        assert torch.equal(part.characters, same.characters)
    assert PTB.version_of(settings) == PTB.version + 1


def test_baseline_of_a_text_with_one_symbol_is_zero_without_a_sign(write):
    baselines = PTB.checked_baselines(PTBSettings.read({"text": write("a" * 1000)}))
    assert f"{baselines['bpc']:.4g}" == "0"


def test_missing_text_is_reported_before_training(tmp_path):
    with pytest.raises(UsageError, match=r"text=.*nothing.txt cannot be read: No such file"):
        PTBSettings.read({"text": str(tmp_path / "nothing.txt")})


@pytest.mark.parametrize("size", [1, 5, 19])
def test_short_text_has_no_pieces_for_too_many_columns(size, write):
    task = PTB(PTBSettings.read({"text": write("ab" * size), "unroll_length": 7}), 0, CPU)
    for split in (task.train, task.validation, task.test):
        assert split.pieces(100) == 0
        assert len(split) == max(0, len(split.characters) - 1) // 7


PIECE, PIECES = SymbolText.piece, SymbolText.pieces


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({}, []),
        (
            {"piece": lambda self, k, columns: PIECE(self, 0, columns)},
            ["streams_have_columns: all pieces are the same"],
        ),
        (
            {"piece": lambda self, k, columns: PIECE(self, k, min(columns, 2))},
            [f"streams_have_columns: a piece is [5, 2, {len(ALPHABET)}], not [T, B, m] = [5, 5, {len(ALPHABET)}]"],
        ),
        (
            {"piece": lambda self, k, columns: PIECE(self, k + (columns > 1), columns)},
            ["streams_have_columns: piece 0 is not its column's"],
        ),
        (
            {"pieces": lambda self, columns: columns},
            ["streams_have_columns: two columns make more pieces than one"],
        ),
    ],
)
def test_contract_checks_the_order_of_streams(wrong, expected, write, monkeypatch):
    monkeypatch.setattr(PTB, "quick", {"text": write(), "unroll_length": "5"})
    for name, method in wrong.items():
        monkeypatch.setattr(SymbolText, name, method)
    assert problems("task", PTB) == expected
