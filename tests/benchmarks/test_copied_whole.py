"""How benchmarks/copied_whole.py counts what a translation has to copy, and that its sentences are a fair test."""

import json
import re
import sys

import pytest

import duplexmt
from benchmarks.copied_whole import kept, kept_whole, main, sentences
from duplexmt.corpus import copies


def test_there_are_200_sentences_50_of_each_kind():
    found = sentences()
    assert [each.kind for each in found] == [kind for kind in ("number", "url", "email", "name") for _ in range(50)]
    assert len({each.text for each in found}) > 190
    assert all(each.copied and copied in each.text for each in found for copied in each.copied)


def test_no_sentence_and_no_name_is_one_that_training_draws():
    for source, _ in copies.SENTENCES["zh", "en"]:
        trained = re.compile(re.sub(r"\\{\w+\\}", "[!-~ ]+", re.escape(source)))
        assert not any(trained.fullmatch(each.text) for each in sentences())
    names = {word for each in sentences() if each.kind == "name" for copied in each.copied for word in copied.split()}
    assert not names & set(copies.GIVEN.split())


@pytest.mark.parametrize(
    ("translation", "copied", "whole"),
    [
        ("It costs 15 yuan.", "15", True), ("It was in 2015.", "15", False), ("It costs 15,000 yuan.", "15", False),
        ("It costs 1.15 yuan.", "15", False), ("At 7:05, he left.", "7:05", True),
        ("See www.a.com.", "www.a.com", True), ("See www.a.community.", "www.a.com", False),
        ("See https://a.com/b.", "https://a.com", False), ("Write to anna@a.de, please.", "anna@a.de", True),
        ("Write to hanna@a.de.", "anna@a.de", False), ("Anna Kelmar's book", "Anna Kelmar", True),
        ("Anna kelmar's book", "Anna Kelmar", False), ("", "15", False),
    ],
)  # fmt: skip
def test_a_thing_is_kept_where_it_stands_letter_by_letter_and_alone(translation, copied, whole):
    assert kept(translation, copied) == whole


def test_a_sentence_counts_where_all_of_it_is_kept():
    found = sentences()
    shares = kept_whole(found, [each.text for each in found])
    assert shares == dict.fromkeys(["number", "all", "url", "email", "name"], 100.0)
    lost = [each.text if each.kind != "name" else each.copied[0] for each in found]
    shares = kept_whole(found, lost)
    alone = sum(len(each.copied) == 1 for each in found if each.kind == "name")
    assert (shares["name"], shares["all"]) == (2 * alone, (150 + alone) / 2)


def test_the_command_ends_with_a_line_of_json(monkeypatch, capsys):
    class Stand:
        theta = 0.5

        def translate(self, texts, theta):
            return ["" if "@" in text else f"So {text}" for text in texts]

    monkeypatch.setattr(duplexmt, "load", lambda folder: Stand(), raising=False)
    monkeypatch.setattr(sys, "argv", ["it", "somewhere", "--theta=0"])
    main()
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["theta"] == 0.0
    monkeypatch.setattr(sys, "argv", ["it", "somewhere", "--show"])
    main()
    *lines, last = capsys.readouterr().out.splitlines()
    assert json.loads(last)["email"] == 0
    assert json.loads(last)["theta"] == 0.5
    assert sum("@" in line for line in lines) == 50, "what is lost"
