"""Sentences of the target language get sources: each once, marked, and going on where a run was killed."""

import gzip
from types import SimpleNamespace

import pytest

from duplexmt.translator import back_translation
from duplexmt.translator.back_translation import back_translate, main, plausible
from tests.serving.live_server import multi_path_folder


@pytest.fixture
def told(monkeypatch):
    """What is asked of a model that says 甲 for each word."""
    asked = []

    def translate_each(texts):
        for text in texts:
            asked.append(text)
            yield "".join("甲乙丙丁戊"[number] for number in range(len(text.split()))) + "。"

    monkeypatch.setattr(back_translation, "load", lambda *_, **__: SimpleNamespace(translate_each=translate_each))
    return asked


def test_each_sentence_is_translated_once_but_for_known_ones(tmp_path, told):
    targets, known, output = (tmp_path / name for name in ("targets.tsv", "known.tsv.gz", "back.zh-en.tsv.gz"))
    targets.write_text("eins\tOne two.\nzwei\tone, two\n\ndrei\tThree  four five.\nvier\tSix.\n", encoding="utf-8")
    known.write_bytes(gzip.compress("六\tsix\n".encode()))
    assert back_translate("model", targets, output, [known]) == (2, 2)
    assert told == ["One two.", "Three four five."]
    assert gzip.decompress(output.read_bytes()).decode() == "※甲乙。\tOne two.\n※甲乙丙。\tThree four five.\n"
    assert {*tmp_path.iterdir()} == {targets, known, output}


def test_a_killed_run_goes_on_and_other_sentences_are_refused(tmp_path, told, capsys, monkeypatch):
    targets, output = tmp_path / "targets.txt", tmp_path / "back.tsv"
    targets.write_text("One two.\nThree.\n", encoding="utf-8")
    begun = tmp_path / "back.tsv.begun"
    begun.write_text("先前\tOne two.\n甲。\tThr", encoding="utf-8")
    assert back_translate("model", targets, output, mark="") == (2, 2)
    assert told == ["Three."]
    assert output.read_text(encoding="utf-8") == "先前\tOne two.\n甲。\tThree.\n"
    begun.write_text("先前\tAnother.\n", encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["back_translation", "model", str(targets), str(output)])
    with pytest.raises(SystemExit):
        main()
    assert "back.tsv.begun was begun with other sentences: give another output, or remove it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "target", "kept"),
    [
        ("河流流过桥。", "The river flows under the bridge.", True),
        ("河流流流流。", "The river flows.", False),
        ("美国的战争，美国的战争。", "The war.", False),
        ("。", "Yes.", False),
        ("好。", "It is quite good here.", False),  # too short
        ("这是非常好的一天。", "Good.", False),  # too long
        ("他昨天买了三本新书", "He bought three new books in town yesterday", False),  # of too many words
    ],
)
def test_what_a_model_writes_at_its_wits_end_is_left_out(source, target, kept):
    assert plausible(source, target, (0.5, 4), 7) == kept


def test_a_model_makes_the_sources_offline(tmp_path):
    targets, output = tmp_path / "targets.txt", tmp_path / "back.tsv"
    targets.write_text("站在那边的男人\n我昨天买了一本书\n", encoding="utf-8")
    sentences, pairs = back_translate(str(multi_path_folder(tmp_path / "model", k=None)), targets, output)
    assert sentences == 2 >= pairs == len(output.read_text(encoding="utf-8").splitlines())
