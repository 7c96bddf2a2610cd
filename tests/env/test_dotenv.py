from __future__ import annotations

import pytest

from twinspark.variant import VariantError
from twinspark.variant.dotenv import parse, quote, read


def refusal(text):
    with pytest.raises(VariantError) as caught:
        parse(text, "x.env")
    return str(caught.value)


def test_reader__takes_blank_lines_comments_bare_and_quoted_values():
    text = (
        "# comment $HOME 'x'\n\n \t\nA=1\nB_2=a/b:c,d@e%f+g=h-i._\n"
        "C='two words # \"here\"'\nD=\nE=''"
    )
    found = parse(text, "x.env")
    assert {item.key: item.value for item in found} == {
        "A": "1",
        "B_2": "a/b:c,d@e%f+g=h-i._",
        "C": 'two words # "here"',
        "D": "",
        "E": "",
    }
    assert [item.line for item in found] == [4, 5, 6, 7, 8]


# Each is read in different ways by bash, systemd or python-dotenv, or not at all by one of them.
@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ('KEY="value"', "single quotes"),
        ("KEY=a b", "single quotes"),
        ("KEY=a # comment", "a line of its own"),
        ("KEY='a' # comment", "nothing follows it"),
        ("KEY='a", "ends with its quote"),
        ("KEY='", "ends with its quote"),
        ("KEY=$HOME", "bare values hold"),
        ("KEY='$HOME'", "a dollar sign"),
        ("KEY='a\\b'", "a backslash"),
        ("KEY='it's'", "a single quote"),
        ("KEY='a\tb'", "not printable"),
        ("KEY=~", "bare values hold"),
        ("KEY=a\\", "bare values hold"),
        ("KEY=1\r", "bare values hold"),
        ("KEY='1'\r", "nothing follows it"),
        ("KEY=\N{NO-BREAK SPACE}1", "bare values hold"),
        ("# a comment\\", "swallows the next line"),
        ("# a comment\r", "not printable"),
        ("export KEY=1", "without export"),
        ("KEY =1", "no blanks around"),
        ("KEY= 1", "no blanks around"),
        (" KEY=1", "no blanks around"),
        ("key=1", "capital letters"),
        ("1KEY=1", "capital letters"),
        ("=1", "capital letters"),
        ("\ufeffKEY=1", "capital letters"),
        ("KEY", "neither a comment nor"),
        (" # comment", "neither a comment nor"),
        ("; comment", "neither a comment nor"),
        ("UID=0", "keeps this name for itself"),
        ("BASH_ENV=/x", "keeps this name for itself"),
        ("LD_PRELOAD=/x", "keeps this name for itself"),
    ],
)
def test_reader__refuses_what_readers_differ_on_and_says_what_to_write(line, advice):
    text = refusal(f"FIRST=1\n{line}\nLAST=1")
    assert text.startswith("x.env:2: ")
    assert advice in text
    assert len(text.splitlines()) == 1


def test_reader__refuses_a_key_set_twice_and_names_both_lines():
    assert refusal("A=1\nB=1\nA=2") == "x.env:3: A: already set in line 1: keep one of the two"


def test_reader__names_every_bad_line_in_order():
    assert [line.split(":")[1] for line in refusal("a=1\nB=1\nC=$\nB=2").splitlines()] == [
        "1",
        "3",
        "4",
    ]


@pytest.mark.parametrize("value", ["it's", "$x", "a\\b", "a\nb", "a\rb", "\x00", "\x7f", "a\tb"])
def test_quote__refuses_what_cannot_be_written(value):
    with pytest.raises(ValueError, match="holds"):
        quote(value)


def test_read__says_where_a_file_is_not_utf8(tmp_path):
    path = tmp_path / "x.env"
    path.write_bytes(b"A=1\n# \xff\n")
    with pytest.raises(VariantError, match=r"x\.env:2: is not UTF-8"):
        read(path)


def test_read__says_which_file_is_missing(tmp_path):
    with pytest.raises(VariantError, match=r"none\.env: cannot be read: No such file"):
        read(tmp_path / "none.env")


def test_windows_file__is_one_refusal():
    with pytest.raises(VariantError) as caught:
        parse("\ufeff# one\r\nA=1\r\nB=2\r\n", "x.env")
    assert str(caught.value) == (
        "x.env: has a byte order mark at its start and Windows line ends (CRLF): save it as UTF-8 "
        "without BOM, with LF line ends"
    )
