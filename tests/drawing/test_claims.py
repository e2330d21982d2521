"""The claims of Section VI-B: on the paper's own table they come out as it says, and where not, that is known."""

from duplexmt.drawing.claims import check_claims

COLUMNS = ("system", "value", "BLEURT", "COMET", "AL_all", "AP", "FRL")
PAPER = [
    {"kind": row[0]} | dict(zip(COLUMNS, row, strict=True))
    for row in [  # tab:duplex-results
        ("offline", None, 54.03, 63.85, 9.39, 1.00, 18.06),
        ("waitk", 3, 43.20, 52.06, 4.98, 0.79, 3.00),
        ("waitk", 5, 45.20, 54.93, 5.99, 0.84, 4.96),
        ("grid", 0.5, 47.01, 59.59, 0.23, 0.49, 2.76),
        ("grid", 0.6, 48.86, 62.42, 1.14, 0.53, 3.31),
        ("grid", 0.7, 49.10, 62.79, 1.61, 0.55, 3.79),
        ("grid", 0.8, 49.75, 63.54, 2.87, 0.59, 4.65),
        ("grid", 0.9, 50.74, 64.73, 4.39, 0.65, 6.09),
    ]
]


def verdicts(rows):
    return {row["claim"]: row["holds"] for row in check_claims(rows, ["COMET", "BLEURT"])}


def test_the_papers_own_table_holds_its_claims_but_for_bleurt_against_offline():
    found = verdicts(PAPER)
    assert [claim for claim, holds in found.items() if holds != "yes"] == [
        "the grid at θ = 0.9 has a higher BLEURT than offline, at a fraction of its FRL"
    ]
    assert len(found) == 14


def test_what_was_found_stands_beside_the_papers_figures():
    rows = {row["claim"]: row for row in check_claims(PAPER, ["COMET"])}
    comet = rows["COMET rises with θ at every step"]
    assert comet["paper"] == "59.59 → 64.73"
    assert comet["found"] == "59.59 → 62.42 → 62.79 → 63.54 → 64.73"
    gain = rows["at the FRL of wait-3 the grid has the higher COMET"]
    # The paper compares θ = 0.6 (FRL 3.31) with wait-3; θ = 0.5 (2.76) is nearer.
    assert (gain["paper"], gain["found"]) == ("+10.36", "+7.53 (θ=0.5, FRL 2.76; wait-3 3.00)")
    assert rows["AP of the grid is below that of every wait-k at every θ"]["found"] == "0.49–0.65 and 0.79–0.84"


def test_a_claim_that_does_not_hold_is_told():
    rows = [row | {"COMET": 50.0} if row["value"] == 0.7 else row for row in PAPER]
    assert verdicts(rows)["COMET rises with θ at every step"] == "no"


def test_what_was_not_evaluated_is_told_and_not_passed_over():
    grid_alone = [row for row in PAPER if row["kind"] == "grid"]
    found = verdicts(grid_alone)
    assert len(found) == len(verdicts(PAPER))
    assert found["COMET rises with θ at every step"] == "yes"
    assert found["at the FRL of wait-3 the grid has the higher COMET"] == "not checked"
    assert found["AP of the grid is below that of every wait-k at every θ"] == "not checked"
    assert set(verdicts([]).values()) == {"not checked"}


def test_of_two_models_of_a_baseline_the_better_one_counts():
    better = [row | {"COMET": 99.0} for row in PAPER if row["value"] in (3, None)]
    assert verdicts(PAPER + better) == verdicts(better + PAPER)
    assert verdicts(PAPER + better)["at the FRL of wait-3 the grid has the higher COMET"] == "no"


def test_of_two_grids_each_is_checked_by_itself():
    worse = [row | {"system": "worse", "COMET": 10.0 - row["value"]} for row in PAPER if row["kind"] == "grid"]
    found = verdicts([*PAPER, *worse])
    assert len(found) == 28
    assert {claim: found[f"grid: {claim}"] for claim in verdicts(PAPER)} == verdicts(PAPER)
    assert found["worse: COMET rises with θ at every step"] == "no"
    assert found["worse: FRL rises with θ at every step"] == "yes"
