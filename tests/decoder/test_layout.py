"""Who sees whom, against loops over tokens."""

import pytest
import torch

from duplexmt.decoder.layout import Layout, naive_seen

from .oracle import drawn_layout, streams_in_loops

FIELDS = ("pair", "stream", "place", "position", "sees", "token")


@pytest.mark.parametrize("anchor", ["source_length", 40, "visible_length"])
@pytest.mark.parametrize("seed", range(2))
def test_tokens_lie_pair_after_pair_the_source_first_as_written_in_loops(seed, anchor):
    layout, shapes, rows = drawn_layout(seed, anchor)
    expected = streams_in_loops(shapes, rows, anchor)
    assert list(zip(*(getattr(layout, name).tolist() for name in FIELDS), strict=True)) == expected
    assert layout.targets.tolist() == [place for place, token in enumerate(expected) if token[1]]
    if layout.first is not None:
        tokens = [token[-1] for token in expected]
        for token in set(tokens):
            assert layout.first[token] == tokens.index(token)


@pytest.mark.parametrize("seed", range(3))
def test_a_query_sees_its_pairs_source_below_sees_and_its_own_stream_up_to_itself(seed):
    layout, shapes, rows = drawn_layout(seed)
    tokens = streams_in_loops(shapes, rows, "source_length")
    expected = [
        [
            pair == of_pair and ((of_stream == 0 and at < sees) or (of_stream == stream and at <= place))
            for of_pair, of_stream, at, *_ in tokens
        ]
        for pair, stream, place, _, sees, _ in tokens
    ]
    assert torch.equal(naive_seen(layout), torch.tensor(expected))


def test_a_source_still_arriving_leaves_the_target_where_its_whole_length_puts_it():
    layout = Layout.of([(2, 3)], [[torch.tensor([1, 2, 2])]], "source_length", source_lengths=[7])
    assert layout.position.tolist() == [0, 1, 7, 8, 9]


@pytest.mark.parametrize("seed", range(3))
def test_each_target_stands_in_one_group_of_about_its_size_and_sees_there_what_the_rule_says(seed, monkeypatch):
    monkeypatch.setattr("duplexmt.decoder.layout.SMALL", 1)
    layout, _, rows = drawn_layout(seed)
    assert len(layout.groups) == 1 + min(4, sum(map(len, rows)))
    seen, found = naive_seen(layout), torch.zeros(len(layout), len(layout), dtype=torch.bool)
    for group in layout.groups:
        real = torch.zeros(group.queries.numel(), dtype=torch.bool)
        real[group.real] = True
        for queries, keys, mask, is_real in zip(
            group.queries, group.keys, group.seen, real.view(group.queries.shape), strict=True
        ):
            for query, sees, there in zip(queries, mask, is_real, strict=True):
                assert sees.any(), "past its end a stream must see something, to stay finite"
                if there:
                    assert not found[query].any(), "once"
                    found[query, keys[sees]] = True
                    assert len(set(keys[sees].tolist())) == int(sees.sum()), "each key once"
    assert torch.equal(found, seen)


@pytest.mark.parametrize(("shape", "views"), [((128, 128), [1, 128]), ((160, 160), [160]), ((2, 220), [1, 2])])
def test_few_rows_of_a_long_pair_are_groups_of_at_least_one_row(shape, views):
    layout = Layout.of([shape], [[torch.full((shape[1],), sees) for sees in views]], "source_length")
    assert [len(group.queries) for group in layout.groups] == [1] * (1 + len(views))
