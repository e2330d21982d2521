"""What a grid model makes of one pair, cell by cell."""

import pytest
import torch

from duplexmt.analysis.sentence_grid import sentence_grid, token_text
from duplexmt.data.batch import collate
from duplexmt.data.tokenizer import StreamTokens, stream_tokens, token_ids
from duplexmt.policy.decoding_options import EmitRule

from ..helpers import SENTENCES, best_path, byte_level_tokenizer, spoken_grid, tiny_tokenizer, trained

TOKENS = stream_tokens(tiny_tokenizer())
SOURCE, TARGET = SENTENCES[1]


def ids(text):
    return token_ids(tiny_tokenizer(), [text])[0]


def test_the_probe_shows_the_models_own_numbers_cell_by_cell():
    model, source, target = spoken_grid(seed=4), ids(SOURCE), ids(TARGET)
    grid = sentence_grid(trained(model, TOKENS), tiny_tokenizer(), source, target, lam=0.05)
    batch = collate([TOKENS.example(source, target)])
    with torch.no_grad():
        hidden = model(batch.source, batch.target)[0]
        losses = -model.text_logits(hidden).log_softmax(-1)
    labels = [*target, TOKENS.end]
    heatmap = torch.stack([losses[:, y, label] for y, label in enumerate(labels)], 1)
    torch.testing.assert_close(torch.tensor(grid.heatmap), heatmap)
    torch.testing.assert_close(torch.tensor(grid.emit), model.emit_logits(hidden).softmax(-1)[..., 1])
    y_at = best_path(heatmap[None], batch.source_lengths, batch.target_lengths, 0.05)
    assert list(grid.y_at) == y_at[0].tolist()
    top = losses.argmin(-1)
    assert grid.top[2][3] == token_text(tiny_tokenizer(), int(top[2, 3]), TOKENS.end)
    assert grid.source[-1] == grid.target[-1] == "■"


def test_p_emit_is_shown_as_decoding_compares_it_with_a_threshold():
    model, source, target = spoken_grid(seed=4), ids(SOURCE), ids(TARGET)
    grid = sentence_grid(trained(model, TOKENS, EmitRule(certainty=0.5)), tiny_tokenizer(), source, target, lam=0.05)
    batch = collate([TOKENS.example(source, target)])
    with torch.no_grad():
        decided = [model.decide(row, 0.5)[0] for row in model(batch.source, batch.target)[0]]
    torch.testing.assert_close(torch.tensor(grid.emit), torch.stack(decided))


@pytest.mark.parametrize(
    ("rule", "settled"),
    [
        (EmitRule(k_min=2), lambda lag, last: 0.0 if lag < 2 and not last else None),
        (EmitRule(k_max=3), lambda lag, last: 1.0 if lag >= 3 else None),
    ],
)
def test_p_emit_is_0_or_1_where_decoding_reads_or_writes_whatever_the_threshold(rule, settled):
    model, source, target = spoken_grid(seed=4), ids(SOURCE), ids(TARGET)
    without = sentence_grid(trained(model, TOKENS), tiny_tokenizer(), source, target, lam=0.05).emit
    found = sentence_grid(trained(model, TOKENS, rule), tiny_tokenizer(), source, target, lam=0.05).emit
    for x, (row, usual) in enumerate(zip(found, without, strict=True)):
        for y, (p, before) in enumerate(zip(row, usual, strict=True)):
            known = settled(x + 1 - y, x == len(found) - 1)
            assert p == (before if known is None else known)


def test_rows_and_columns_of_prefixes_are_left_out():
    tokens = StreamTokens(TOKENS.end, TOKENS.seed, source_prefix=(5, 6), target_prefix=(7,))
    grid = sentence_grid(trained(spoken_grid(), tokens), tiny_tokenizer(), ids("我好"), ids("a cat"), lam=0.0)
    assert len(grid.source) == len(ids("我好")) + 1
    assert "".join(grid.target) == "a cat■"


def test_a_part_of_a_character_is_named_rather_than_shown_broken():
    tokenizer = byte_level_tokenizer()
    (token, *_) = token_ids(tokenizer, ["龘"])[0]
    assert "�" not in token_text(tokenizer, token, end=0)
