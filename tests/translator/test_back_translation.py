"""Sentences of the target language get sources: each once, marked, and going on where a run was killed."""

import gzip
import lzma
import os
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

    monkeypatch.setattr(
        "duplexmt.translator.translator.load", lambda *_, **__: SimpleNamespace(translate_each=translate_each)
    )
    monkeypatch.setattr(back_translation, "fingerprint", lambda folder: f"of {folder}")
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
    begun.write_text("model of model\n先前\tOne two.\n甲。\tThr", encoding="utf-8")
    assert back_translate("model", targets, output, mark="") == (2, 2)
    assert told == ["Three."]
    assert output.read_text(encoding="utf-8") == "先前\tOne two.\n甲。\tThree.\n"
    begun.write_text("model of model\n先前\tAnother.\n", encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["back_translation", "model", str(targets), str(output)])
    with pytest.raises(SystemExit):
        main()
    assert "back.tsv.begun was begun with other sentences: give another output, or remove it" in capsys.readouterr().err


def test_another_model_does_not_go_on_where_one_was_killed(tmp_path, told):
    targets, begun = tmp_path / "targets.txt", tmp_path / "back.tsv.begun"
    targets.write_text("One two.\nThree.\n", encoding="utf-8")
    begun.write_text("model of first\n先前\tOne two.\n", encoding="utf-8")
    with pytest.raises(ValueError, match="begun was begun with another model: give that one, or another output, or"):
        back_translate("second", targets, tmp_path / "back.tsv")
    assert back_translate("first", targets, tmp_path / "back.tsv") == (2, 2)


@pytest.mark.parametrize("link", [None, os.symlink, os.link])
def test_no_input_is_overwritten(tmp_path, told, link):
    targets, known, output = tmp_path / "targets.txt", tmp_path / "known.txt", tmp_path / "back.tsv"
    for path in (targets, known):
        path.write_text("One.\n", encoding="utf-8")
        if link:
            link(path, output)
        with pytest.raises(ValueError, match=rf"would overwrite the input \S*{path.name}; give another output"):
            back_translate("model", targets, output if link else path, [known])
        output.unlink(missing_ok=True)
    targets.rename(tmp_path / "back.tsv.begun")
    with pytest.raises(ValueError, match="would overwrite the input"):
        back_translate("model", tmp_path / "back.tsv.begun", output)
    assert not told


@pytest.mark.parametrize(
    ("output", "limits", "message"),
    [
        ("back.tsv", {"ratio": (5, 1)}, "--ratio 5 1: must be the least and then the most, from 0 up"),
        ("back.tsv", {"ratio": (-1, 1)}, "--ratio -1 1: must be"),
        ("back.tsv", {"ratio": (0, float("nan"))}, "--ratio 0 nan: must be"),
        ("back.tsv", {"most_words": 0.5}, "--most-words 0.5: must be at least 1"),
        ("none/back.tsv", {}, r"none/back.tsv: must be a file in a folder that exists; make \S*none, or give another"),
        ("", {}, "must be a file in a folder that exists"),
        ("back.tsv.xz", {}, "back.tsv.xz: must be a plain file or end in .gz"),
        ("back.tsv", {"known": ["nowhere.txt"]}, "nowhere.txt: there is no such file"),
        ("back.tsv", {"known": ["targets.txt"]}, "targets.txt: has no sentence but for those of --known"),
    ],
)
def test_what_can_bring_no_pairs_is_refused_before_anything_is_translated(tmp_path, told, output, limits, message):
    (tmp_path / "targets.txt").write_text("One two.\n", encoding="utf-8")
    limits["known"] = [tmp_path / name for name in limits.get("known", [])]
    with pytest.raises(ValueError, match=message):
        back_translate("model", tmp_path / "targets.txt", tmp_path / output, **limits)
    assert not told
    assert [path.name for path in tmp_path.iterdir()] == ["targets.txt"]


def test_where_nothing_is_kept_the_translations_are(tmp_path, told):
    targets, output = tmp_path / "targets.txt", tmp_path / "back.tsv"
    targets.write_text("One two.\nThree.\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"no pairs: all 2 were left out by their form .*--ratio 5 9.*begun has them"):
        back_translate("model", targets, output, ratio=(5, 9))
    assert not output.exists()
    assert back_translate("model", targets, output) == (2, 2)
    assert len(told) == 2, "none of them again"


def test_inputs_are_read_as_all_text_files_are(tmp_path, told):
    targets, known, output = tmp_path / "targets.txt.xz", tmp_path / "known.txt", tmp_path / "back.tsv"
    targets.write_bytes(lzma.compress("\ufeffOne.\r\nTwo.\n".encode()))
    known.write_bytes("\ufeffone\n".encode())
    assert back_translate("model", targets, output, [known]) == (1, 1)
    assert told == ["Two."]
    known.write_bytes("今天天气很好。\n我们去公园吧。\n".encode("gbk"))
    with pytest.raises(ValueError, match=r"known.txt is not UTF-8 but seems to be GB18030: convert it by `iconv"):
        back_translate("model", targets, output, [known])
    known.write_bytes(b"One.\nTwo.\nThr\xffee.\nFour.\n" + b"Five.\n" * 20)
    with pytest.raises(ValueError, match=r"known.txt, line 3: not UTF-8"):
        back_translate("model", targets, output, [known])


def test_a_model_is_known_by_what_is_in_its_folder(tmp_path):
    first, copy, other = (
        multi_path_folder(tmp_path / name, seed, None) for name, seed in [("a", 0), ("b", 0), ("c", 1)]
    )
    first, copy, other = map(back_translation.fingerprint, map(str, (first, copy, other)))
    assert first == copy != other


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
