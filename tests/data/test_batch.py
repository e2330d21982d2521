"""Examples and padded batches, worked by hand."""

from dataclasses import replace

import torch

from duplexmt.data.batch import PADDING_ID, Example, collate

PAIR = Example(source=(10, 11, 12, 2), target=(1, 20, 21, 2))
SHORT = Example(source=(13, 2), target=(1, 22, 2))


def test_an_example_has_a_cell_for_each_source_token_and_each_predicted_token():
    assert PAIR.cells == 4 * 3
    assert SHORT.cells == 2 * 2


def test_a_batch_is_padded_on_the_right_and_labels_are_the_target_one_ahead():
    batch = collate([PAIR, SHORT])
    assert (PADDING_ID, batch.source.dtype) == (0, torch.int64)
    assert batch.source.tolist() == [[10, 11, 12, 2], [13, 2, 0, 0]]
    assert batch.target.tolist() == [[1, 20, 21], [1, 22, 0]]
    assert batch.labels.tolist() == [[20, 21, 2], [22, 2, 0]]
    assert batch.source_lengths.tolist() == [4, 2]
    assert batch.target_lengths.tolist() == [3, 2]
    assert batch.shapes == ((4, 3), (2, 2))
    assert batch.step is None


def test_a_pair_has_the_same_key_in_every_batch_and_process_and_another_pair_another():
    assert collate([PAIR, SHORT]).keys == (PAIR.key, SHORT.key)
    assert collate([SHORT, PAIR]).to("meta").keys == (SHORT.key, PAIR.key)
    assert SHORT.key == 0x40B7D982, "what is drawn by it would change in a resumed run"
    assert len({SHORT.key, PAIR.key, Example(SHORT.source[:1], (SHORT.source[1], *SHORT.target)).key}) == 3


def test_moving_a_batch_moves_every_tensor_and_the_step_it_brings():
    first, second = collate([PAIR]), collate([SHORT])
    whole = replace(first, step=(first, second))
    moved = whole.to("meta")
    for batch in (moved, *moved.step):
        tensors = [value for value in vars(batch).values() if isinstance(value, torch.Tensor)]
        assert len(tensors) == 5
        assert {tensor.device.type for tensor in tensors} == {"meta"}
    assert [batch.source.shape for batch in moved.step] == [(1, 4), (1, 2)]
    assert moved.step[0].step is None
