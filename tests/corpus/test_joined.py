"""Two training pairs as one: which are joined, how, and that only training sees them."""

import pytest

from duplexmt.common.pair import Pair
from duplexmt.corpus.joined import joined_pairs

PAIRS = [Pair(f"甲{n}。", f"A {n}.") for n in range(40)] + [
    Pair("一二三四五六七八九十", "too long"),
    Pair("好？", "Good?"),
]


def characters(texts):
    return [len(text) for text in texts]


def words(texts):
    return [len(text.split()) for text in texts]


def join(pairs=PAIRS, most=10, languages=("zh", "en"), seed=1):
    return joined_pairs(pairs, most, languages, characters, words, seed)


def test_each_short_pair_is_followed_by_another_one_and_none_twice():
    short = [pair for pair in PAIRS if len(pair.source) <= 5]
    found = join()
    assert len(found) >= len(short) - 3, "but for those that would follow themselves"
    firsts, seconds = zip(*(pair.target.replace("?", ".").rstrip(".").split(". ") for pair in found), strict=True)
    known = {pair.target.rstrip(".?") for pair in short}
    assert set(firsts) <= known
    assert set(seconds) <= known
    assert len(set(firsts)) == len(set(seconds)) == len(found)
    assert all(one != other for one, other in zip(firsts, seconds, strict=True))


def test_half_of_the_chinese_full_stops_between_become_commas_and_no_other_mark_does():
    sources = [pair.source for pair in join(PAIRS * 20)]
    middles = [source[:-1] for source in sources]
    commas, stops = (sum(mark in middle for middle in middles) for mark in "，。")
    assert 0.4 < commas / (commas + stops) < 0.6
    assert all("，" not in source for source in sources if source.startswith("好？"))
    assert {pair.source[-1] for pair in join()} <= {"。", "？"}


def test_languages_with_spaces_get_one_between_and_keep_their_marks():
    found = join([Pair(pair.target, pair.source) for pair in PAIRS[:40]], most=30, languages=("en", "zh"))
    assert all(pair.source.count(". ") == 1 for pair in found)
    assert not any(" " in pair.target or "，" in pair.target for pair in found)


def test_the_sentence_before_is_that_of_the_first():
    found = join([pair._replace(before=f"before {pair.target}") for pair in PAIRS])
    assert all(pair.target.startswith(pair.before.removeprefix("before ")) for pair in found)


def test_the_seed_alone_decides():
    assert join() == join()
    assert join() != join(seed=2)


@pytest.mark.parametrize("pairs", [[], PAIRS[:1]])
def test_nothing_is_joined_where_nothing_can_follow(pairs):
    assert join(pairs) == []
