"""The order of training pairs: every claim of `StepLoader`."""

from bisect import bisect_left, insort
from itertools import islice

import pytest

from duplexmt.data.batch import Example
from duplexmt.data.loader import StepLoader


def examples(count, longest=9):
    """`count` pairs of mixed lengths, told apart by their first source token."""
    return [
        Example(source=(1000 + i, *[7] * (i * 7 % longest), 0), target=(1, *[8] * (i * 7 % longest + i % 3), 0))
        for i in range(count)
    ]


def names(batch):
    """Which pairs a batch holds."""
    return [int(row[0]) - 1000 for row in batch.source]


def orders(loader):
    return [names(batch) for batch in loader]


def seen(loader):
    """All pairs of an epoch, sorted."""
    return sorted(pair for batch in loader for pair in names(batch))


def steps_of_all_devices(pairs, batch_size, accumulate, world_size, **options):
    """The set of pairs of each optimiser step, gathered over devices and accumulated batches."""
    devices = [
        orders(StepLoader(pairs, batch_size, 5, accumulate, rank, world_size, **options)) for rank in range(world_size)
    ]
    assert len({len(batches) for batches in devices}) == 1, "devices must take the same number of steps"
    return [
        sorted(pair for batches in devices for batch in batches[begin : begin + accumulate] for pair in batch)
        for begin in range(0, len(devices[0]), accumulate)
    ]


@pytest.mark.parametrize(("count", "batch_size", "accumulate"), [(50, 4, 2), (5, 16, 1)])
def test_every_pair_is_seen_exactly_once_an_epoch(count, batch_size, accumulate):
    loader = StepLoader(examples(count), batch_size, seed=1, accumulate=accumulate, pool=16)
    for epoch in range(2):
        loader.set_epoch(epoch)
        assert seen(loader) == list(range(count))


def test_an_order_depends_on_seed_and_epoch_and_not_on_the_epochs_before():
    loaders = [StepLoader(examples(40), 4, seed) for seed in (3, 4)]
    epochs = []
    for epoch in range(3):
        for loader in loaders:
            loader.set_epoch(epoch)
            epochs.append(orders(loader))
    assert all(one != other for number, one in enumerate(epochs) for other in epochs[:number])
    fresh = StepLoader(examples(40), 4, seed=3)
    fresh.set_epoch(2)
    assert orders(fresh) == epochs[4]


@pytest.mark.parametrize("count", [48, 61, 9], ids=["whole steps", "pairs left over", "less than two steps"])
def test_a_step_has_the_same_pairs_whatever_devices_and_accumulation_share_it(count):
    pairs = examples(count)
    one = steps_of_all_devices(pairs, 8, 1, 1, pool=24)
    for batch_size, accumulate, world_size in [(4, 1, 2), (2, 1, 4), (1, 1, 8), (4, 2, 1), (2, 2, 2), (1, 2, 4)]:
        assert steps_of_all_devices(pairs, batch_size, accumulate, world_size, pool=24) == one


@pytest.mark.parametrize("world_size", [1, 3])
def test_batches_of_a_step_differ_by_at_most_one_pair_and_none_is_empty(world_size):
    devices = [orders(StepLoader(examples(53), 3, 5, 2, rank, world_size)) for rank in range(world_size)]
    for begin in range(0, len(devices[0]), 2):
        sizes = [len(batch) for batches in devices for batch in batches[begin : begin + 2]]
        assert max(sizes) - min(sizes) <= 1
        assert min(sizes) >= 1


def test_the_first_batch_of_an_accumulated_step_brings_the_whole_step_along():
    batches = list(StepLoader(examples(24), 2, seed=1, accumulate=3))
    assert len(batches) == 12
    for begin in range(0, 12, 3):
        first, *rest = batches[begin : begin + 3]
        assert [names(batch) for batch in first.step] == [names(batch) for batch in (first, *rest)]
        assert all(batch.step is None for batch in (*first.step, *rest))
    assert all(batch.step is None for batch in StepLoader(examples(24), 2, seed=1))


@pytest.mark.parametrize("options", [{}, {"accumulate": 2}])
def test_resumed_at_any_batch_an_epoch_goes_on_exactly(options):
    def loader():
        return StepLoader(examples(21), 2, seed=1, **options)

    whole = loader()
    whole.set_epoch(4)
    expected = orders(whole)
    for done in range(1, len(expected)):
        interrupted = loader()
        interrupted.set_epoch(4)
        head = [names(batch) for batch in islice(interrupted, done)]
        resumed = loader()
        resumed.load_state_dict(interrupted.state_dict())
        resumed.set_epoch(4)  # as Lightning does
        assert resumed.state_dict() == interrupted.state_dict()
        assert resumed.state_dict().items() >= {"epoch": 4, "seen": done, "batches": len(expected)}.items()
        assert head + orders(resumed) == expected
        resumed.set_epoch(5)
        assert seen(resumed) == list(range(21)), "the epoch after must be whole"


def test_state_saved_after_the_last_batch_resumes_with_a_whole_epoch():
    loader = StepLoader(examples(8), 2, seed=1)
    list(islice(loader, 4))
    assert loader.state_dict().items() >= {"epoch": 0, "seen": 4, "batches": 4}.items()
    for resumed in (StepLoader(examples(8), 2, seed=1), StepLoader(examples(8), 4, seed=2)):
        resumed.load_state_dict(loader.state_dict())
        resumed.set_epoch(1)
        assert seen(resumed) == list(range(8))


@pytest.mark.parametrize(
    ("begun", "now", "told"),
    [
        ({}, {"seed": 2}, r"seed=1 \(now 2\)"),
        ({"batch_size": 8}, {"batch_size": 9}, r"pairs_per_step=8 \(now 9\)"),
        ({"batch_size": 9}, {"accumulate": 2, "batch_size": 8}, r"pairs_per_step=9 \(now 16\), accumulate=1 \(now 2\)"),
    ],
)
def test_inside_an_epoch_of_other_batches_no_run_goes_on_even_if_they_are_as_many(begun, now, told):
    usual = {"batch_size": 2, "seed": 1}
    begun, now = (StepLoader(examples(20), **usual | options) for options in (begun, now))
    assert len(begun) == len(now)
    list(islice(begun, 1))
    with pytest.raises(ValueError, match=rf"after 1 of an epoch's {len(begun)} batches, and .*: {told}; resume with"):
        now.load_state_dict(begun.state_dict())


def test_a_checkpoint_that_knows_the_number_of_batches_alone_still_loads():
    resumed = StepLoader(examples(8), 2, seed=1)
    resumed.load_state_dict({"epoch": 3, "seen": 1, "batches": 4})
    resumed.set_epoch(3)
    assert len(orders(resumed)) == 3


def test_too_few_pairs_for_all_devices_are_refused_with_numbers():
    with pytest.raises(ValueError, match=r"5 training pairs cannot fill 2 devices × 3 accumulated batches"):
        StepLoader(examples(5), 1, seed=1, accumulate=3, world_size=2)
    StepLoader(examples(6), 1, seed=1, accumulate=3, world_size=2)
    with pytest.raises(ValueError, match="0 training pairs"):
        StepLoader([], 1, seed=1)


def test_sorting_by_length_leaves_less_padding_than_plain_shuffling():
    pairs = examples(200, longest=30)

    def cells(pool):
        return sum(batch.source.shape[1] * batch.target.numel() for batch in StepLoader(pairs, 8, seed=1, pool=pool))

    unpadded = sum(pair.cells for pair in pairs)
    assert unpadded < cells(pool=200) < 1.3 * unpadded
    assert cells(pool=8) > 1.6 * unpadded  # a pool of one step is not sorted at all


class Sizes:
    """A planner of made-up sizes: target tokens count twice in odd epochs, and the plan is its size."""

    def __call__(self, batch, epoch, size=None):
        return size

    def size(self, pair, epoch):
        X, Y = pair.shape
        return X + Y * (1 + epoch % 2), Y * (1 + epoch % 2)

    def mean_size(self, pair):
        X, Y = pair.shape
        return X + 1.5 * Y, 1.5 * Y


def packed(pairs, batch_tokens=512, seed=5, accumulate=1, rank=0, world_size=1, **options):
    return StepLoader(
        pairs, 1, seed, accumulate, rank, world_size, batch_tokens=batch_tokens, planner=Sizes(), **options
    )


@pytest.mark.parametrize("count", [400, 1503, 3])
def test_packed_every_pair_is_seen_once_an_epoch_in_lists_of_one_size(count):
    pairs, sizes = examples(count, longest=40), set()
    loader = packed(pairs)
    for epoch in range(4):
        loader.set_epoch(epoch)
        batches = list(loader)
        assert len(batches) == len(loader)
        assert sorted(name for batch in batches for name in names(batch)) == list(range(count))
        if epoch % 2 == 0:  # the epoch that draws less than the mean
            sizes |= {batch.plan for batch in batches}
    assert len(sizes) == 1
    ((length, wanted),) = sizes
    assert length == 512
    assert wanted < length


def best_fit(sizes, room):
    """How many lists of so much room the best fit needs, the largest first."""
    free = []
    for size in sorted(sizes, reverse=True):
        at = bisect_left(free, size)
        insort(free, (free.pop(at) if at < len(free) else room) - size)
    return len(free)


def test_packed_lists_are_nearly_full_and_none_is_much_fuller_than_another():
    pairs = examples(4000, longest=40)
    planner = Sizes()
    planner.mean_size = lambda pair: planner.size(pair, 0)
    loader = StepLoader(pairs, 1, 5, batch_tokens=2048, planner=planner)
    filled = [sum(X + Y for X, Y in batch.shapes) for batch in loader]
    assert max(filled) < 2048
    assert sum(filled) / len(filled) > 0.975 * 2048
    assert len(filled) <= 1.02 * best_fit([sum(pair.shape) for pair in pairs], 2047)
    assert max(filled) - min(filled) < 45
    longest = [max(map(sum, batch.shapes)) for batch in loader]
    assert min(longest) > 70, "each step has pairs of all lengths"


def test_packed_a_list_grows_where_a_pair_finds_no_room():
    pairs = [*examples(60), Example(source=(1060, *[7] * 400, 0), target=(1, *[8] * 700, 0))]
    lists = [batch.plan for batch in packed(pairs, 256)]
    assert max(lists)[0] % 128 == 0
    assert max(lists)[0] > 1100
    assert sum(length == 256 for length, _ in lists) == len(lists) - 1


@pytest.mark.parametrize("count", [48, 611, 9])
def test_packed_a_step_has_the_same_pairs_whatever_devices_and_accumulation_share_it(count):
    pairs = examples(count, longest=30)
    one = None
    for tokens, accumulate, world_size in [(2048, 1, 1), (1024, 1, 2), (512, 2, 2), (512, 4, 1), (256, 2, 4)]:
        devices = [orders(packed(pairs, tokens, 5, accumulate, rank, world_size)) for rank in range(world_size)]
        assert len({len(batches) for batches in devices}) == 1
        assert all(batch for batches in devices for batch in batches)
        steps = [
            sorted(pair for batches in devices for batch in batches[begin : begin + accumulate] for pair in batch)
            for begin in range(0, len(devices[0]), accumulate)
        ]
        one = one or steps
        assert steps == one


@pytest.mark.parametrize(("ahead", "accumulate"), [(0, 2), (2, 1)])
def test_packed_and_resumed_at_any_batch_an_epoch_goes_on_exactly(ahead, accumulate):
    def loader():
        return packed(examples(120, longest=30), 256, accumulate=accumulate, ahead=ahead)

    whole = loader()
    whole.set_epoch(3)
    expected = orders(whole)
    assert len(expected) > 6
    for done in (1, 2, 5, len(expected) - 1):
        interrupted = loader()
        interrupted.set_epoch(3)
        head = [names(batch) for batch in islice(interrupted, done)]
        resumed = loader()
        resumed.load_state_dict(interrupted.state_dict())
        resumed.set_epoch(3)
        assert head + orders(resumed) == expected
        resumed.set_epoch(4)
        assert seen(resumed) == list(range(120))


def test_what_goes_wrong_in_the_thread_that_makes_batches_ends_the_loop():
    loader = packed(examples(200), 256, ahead=2)
    loader.planner.__class__ = type("Broken", (Sizes,), {"__call__": lambda *_: 1 / 0})
    with pytest.raises(ZeroDivisionError):
        list(loader)
