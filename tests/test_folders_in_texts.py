"""Texts for others name no folder of this machine, in any spelling."""

from __future__ import annotations

import pytest

from orthobench.errors import without_folders


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("cannot read /home/jane/secret/x.py", "cannot read x.py"),
        ("'/home/jane doe/secret project/x.py'", "'x.py'"),
        ("no file /home/jane doe/secret project/x.py today", "no file x.py today"),
        ('"/home/jane\'s/secret/x.py"', '"x.py"'),
        ("file:///home/jane/secret/x.py", "x.py"),
        ("sqlite:////home/jane/runs.db", "runs.db"),
        ("failed:/home/jane/secret/x.py", "failed:x.py"),
        ("path=/home/jane/secret/x.py:12: bad", "path=x.py:12: bad"),
        ("~/secret/x.py and ~jane/secret/y.py", "x.py and y.py"),
        ("C:/Users/jane/x.csv", "x.csv"),
        (r"C:\PROGRA~1\jane\x.csv", "x.csv"),
        (r"C:\Users\jane doe\x.csv", "x.csv"),
        (repr(r"C:\Users\jane\x.csv"), "'x.csv'"),
        (r"\\server\jane\secret\x.csv", "x.csv"),
        (repr(r"\\server\jane\secret\x.csv"), "'x.csv'"),
        (r"\\?\C:\Users\jane\x.csv", "x.csv"),
        (r"\\?\UNC\server\jane\x.csv", "x.csv"),
        ("on //server/jane/secret/x.csv", "on x.csv"),
        ("FILE:///home/jane/x.py", "x.py"),
        ("file:///C:/Users/jane/x.csv", "x.csv"),
        ("/home/jane/2024-01-01T10:30/x.py:12: bad", "x.py:12: bad"),
        ("from '/home/jane/a.py' to '/home/jane/b.py'", "from 'a.py' to 'b.py'"),
        ("/home/jane/a.py and /home/jane/b.py", "a.py and b.py"),
    ],
)
def test_only_the_name_of_a_file_stays(text, shown):
    assert without_folders(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "https://example.org/papers/one/x.pdf",
        "see http://localhost:8080/a/b, hf://org/runs/x and s3://bucket/runs/x",
        "loss 3.5 / 2 at 10 it/s, 3/4/5",
        "/x.py has no folder",
        "[10, 4]: expected [batch, features]",
    ],
)
def test_other_texts_stay(text):
    assert without_folders(text) == text
