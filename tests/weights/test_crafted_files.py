"""Files of weights from anywhere: each fault ends in one line that names the file, before memory is taken."""

from __future__ import annotations

import json
import random
import resource
import struct

import pytest
import torch
from safetensors.torch import save

import orthobench as ob
from orthobench.errors import UsageError
from orthobench.spec.resolve import RunSpec
from orthobench.weights.weights_files import FACTS, decode

MUTATIONS = 400


@pytest.fixture(scope="module")
def content(tmp_path_factory) -> bytes:
    """A file of a tiny run's weights."""
    folder = tmp_path_factory.mktemp("weights")
    sizes = {"sequence_length": 10, "train_size": 20, "test_size": 20, "batch_size": 10, "epochs": 1, "hidden_size": 4}
    run = ob.run("adding", "scornn", db=str(folder / "r.db"), settings=sizes)
    return (folder / "r.db.weights" / f"{run.key}.best.safetensors").read_bytes()


@pytest.fixture
def refused(tmp_path):
    """A function that loads a content, and returns the line that refuses it."""
    file = tmp_path / "crafted.safetensors"

    def load(content: bytes) -> str:
        file.write_bytes(content)
        with pytest.raises(UsageError, match="crafted") as caught:
            ob.load_model(file)
        line = str(caught.value)
        assert "\n" not in line
        return line

    return load


def with_facts(content: bytes, text: str) -> bytes:
    """Return the file with another text in place of its facts."""
    return save(decode(content, "").tensors, {"format": "pt", FACTS: text})


def with_settings(content: bytes, **changes: object) -> bytes:
    """Return the file with other facts, whose key fits the changed settings of the model."""
    facts = decode(content, "").facts
    facts["spec"]["model_settings"] |= changes
    facts["key"] = RunSpec(**facts["spec"]).key
    return with_facts(content, json.dumps(facts))


def test_original_file_is_loaded(content, tmp_path):
    (tmp_path / "w.safetensors").write_bytes(with_settings(content))
    assert ob.load_model(tmp_path / "w.safetensors").kind == "best"


@pytest.mark.parametrize(
    "changes",
    [
        {"spec": "a text"},
        {"spec": {}},
        {"signature": []},
        {"signature": {"input_size": "x", "output_size": 1, "readout": "last", "tokens": False}},
        {"signature": {"input_size": 10**12, "output_size": 1, "readout": "last", "tokens": False}},
        {"signature": {"input_size": -1, "output_size": 1, "readout": "last", "tokens": False}},
        {"signature": {"input_size": 2, "output_size": 1, "readout": "no such", "tokens": False}},
        {"kind": "first"},
        {"kind": None},
        {"iteration": "x"},
        {"iteration": -1},
        {"key": 3},
        {"format": "x"},
    ],
)
def test_facts_of_other_types_are_refused(content, refused, changes):
    facts = decode(content, "").facts
    refused(with_facts(content, json.dumps(facts | changes)))


@pytest.mark.parametrize("name", ["key", "kind", "iteration", "spec", "signature", "format"])
def test_missing_facts_are_refused(content, refused, name):
    facts = decode(content, "").facts
    del facts[name]
    refused(with_facts(content, json.dumps(facts)))


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, "null", "[]", "3", '"x"', "{}", "", "{", "9" * 5000]
)
def test_other_json_is_refused(content, refused, text):
    refused(with_facts(content, text))
    header = text.encode()
    refused(struct.pack("<Q", len(header)) + header)


def test_settings_that_json_cannot_hold_are_refused(content, refused):
    facts = decode(content, "").facts
    facts["spec"]["training"]["learning_rate"] = float("nan")
    refused(with_facts(content, json.dumps(facts)))


@pytest.mark.parametrize(
    "sizes", [{"hidden_size": 100_000}, {"hidden_size": 2**40}, {"layers": 10**9}, {"hidden_size": 5}, {"layers": 2}]
)
def test_sizes_are_compared_before_memory_is_taken(content, refused, sizes):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    line = refused(with_settings(content, **sizes))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000, line  # kB


def test_tensors_of_other_names_or_shapes_are_refused(content, refused):
    facts, tensors = json.dumps(decode(content, "").facts), decode(content, "").tensors
    name = next(iter(tensors))
    for changed in (
        {},
        {other: tensor for other, tensor in tensors.items() if other != name},
        tensors | {"more": torch.zeros(2)},
        tensors | {name: torch.zeros(3, 3, 3)},
    ):
        refused(save(changed, {"format": "pt", FACTS: facts}))


@pytest.mark.slow
def test_no_mutation_ends_in_another_error(content, tmp_path):
    """Deterministic mutations of bytes, most of them in the header, load or are refused in one line."""
    chance, file = random.Random(0), tmp_path / "crafted.safetensors"
    (length,) = struct.unpack_from("<Q", content)
    refusals: list[str] = []
    for number in range(MUTATIONS):
        mutated = bytearray(content)
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(8 + length if number % 8 else len(mutated))
            match chance.randrange(4):
                case 0:
                    mutated[at] ^= 1 << chance.randrange(8)
                case 1:
                    mutated[at : at + 1] = chance.choice([b"0", b"9", b'"', b"[", b"{", b"-", b"\\", b"null", b"1e999"])
                case 2:
                    del mutated[at : at + chance.randint(1, 20)]
                case 3:
                    mutated[at:at] = mutated[at : at + chance.randint(1, 20)]
        if number % 2 and len(mutated) > 8:  # keep the length true, so that the header is read
            mutated[:8] = struct.pack("<Q", length + len(mutated) - len(content))
        file.write_bytes(bytes(mutated))
        try:
            ob.load_model(file)
        except UsageError as error:
            refusals.append(str(error))
    assert len(refusals) > MUTATIONS // 2
    assert [line for line in refusals if "crafted" not in line or "\n" in line] == []
