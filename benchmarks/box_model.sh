#!/usr/bin/env bash
# The models in the box, made again from the pairs in the box: `make model`, `make model-de`.
#
#     benchmarks/box_model.sh zh-en                        # into models/zh-en
#     benchmarks/box_model.sh de-en                        # into models/de-en
#     OUT=runs/trial INTO=runs/trial/zh-en LIMIT=20 benchmarks/box_model.sh zh-en data.train_size=2000   # a trial
#
# The trainings, the last one a grid (conf/experiment/box_*.yaml); the θ at which it lags by AL (3) tokens on validation
# pairs; packing (float16); the packed model's scores on held-out pairs, all (2,000 captions) or LIMIT. At last the model
# is packed into INTO, with these scores, what it copies whole and everyday sentences in its card, and samples chosen by
# the first of them. stages.sh says what else holds.
model=${1:-}
shift || true
# shellcheck source=benchmarks/stages.sh
source "$(dirname "${BASH_SOURCE[0]}")/stages.sh"
[[ ${AL:-3} =~ ^[0-9]*\.?[0-9]*$ && ${AL:-3} == *[1-9]* ]] || die "AL=$AL: must be a number above 0"
INTO=${INTO:-$PWD/models/$model}

of() { quoted "$OUT/$1/model"; }

average() { # STAGE… INTO
    local folders=("${@/#/$OUT/}")
    [[ -e $OUT/${*: -1}/model/duplexmt.json ]] || run -m duplexmt.model_folder.average "${folders[@]/%//model}"
}

case $model in
zh-en)
    OUT=${OUT:-$PWD/runs/box-model} tests=(tatoeba captions)
    train tokenizer experiment=box_tokenizer "$@"
    train english experiment=box_english "data.tokenizer=$(of tokenizer)" "$@"
    train base experiment=box_base "model.backbone=$(of english)" "$@"
    train everyday experiment=box_everyday "model.backbone=$(of base)" "$@"
    train grid experiment=box_grid "model.backbone=$(of everyday)" "$@"
    train copies experiment=box_copies "model.backbone=$(of grid)" "$@"
    # data/README.md says how the pairs of tatoeba-back were made.
    train back experiment=box_back "model.backbone=$(of copies)" "$@"
    train again experiment=box_again "model.backbone=$(of back)" "$@"
    train daily experiment=box_daily "model.backbone=$(of again)" "$@"
    train written experiment=box_written "model.backbone=$(of daily)" "$@"
    train back-grid experiment=box_back_grid "model.backbone=$(of written)" "$@"
    train more experiment=box_more "model.backbone=$(of back-grid)" "$@"
    train more-grid experiment=box_more_grid "model.backbone=$(of more)" "$@"
    average back-grid more-grid mean
    train longer experiment=box_longer "model.backbone=$(of mean)" "$@"
    train longer-grid experiment=box_longer_grid "model.backbone=$(of longer)" "$@"
    average mean longer-grid last
    ;;
de-en)
    OUT=${OUT:-$PWD/runs/box-model-de-en} tests=(tatoeba_de)
    train base experiment=box_de_base "$@"
    train grid experiment=box_de_grid "model.backbone=$(of base)" "$@"
    [[ -e $OUT/grown/duplexmt.json ]] ||
        run -m duplexmt.model_folder.grow "$OUT/grid/model" "$OUT/grown" --hidden 256 --layers 8
    train again experiment=box_de_again "model.backbone=$(quoted "$OUT/grown")" "$@"
    train last experiment=box_de_last "model.backbone=$(of again)" "$@"
    ;;
*) die "which model? benchmarks/box_model.sh zh-en, or de-en" ;;
esac
evaluate theta "model_folder=$(of last)" "target_al=${AL:-3}" "limit=${LIMIT:-500}" policy.beam=4 policy.lookahead=1
[[ -e $OUT/packed/duplexmt.json ]] || run -m duplexmt.model_folder.pack "$OUT/last/model" "$OUT/packed"
for data in "${tests[@]}"; do
    limit=${LIMIT:-}
    [[ $data != captions ]] || limit=${LIMIT:-2000} # as many as its card has
    evaluate "$data" "model_folder=$(quoted "$OUT/packed")" "data=$data" 'policy.theta=[0.3,0.5,0.7,0.9]' \
        ${limit:+"limit=$limit"}
done
run -m duplexmt.model_folder.pack "$OUT/last/model" "$INTO" --results "${tests[@]/#/$OUT/}"
run -m duplexmt.evaluation.samples "$OUT/${tests[0]}" "$INTO"
if [[ $model == zh-en && -z ${DRY_RUN:-} ]]; then
    {
        printf '\n## What has to be copied\n\n'
        echo 'Kept whole in 200 sentences with one thing to copy each (`benchmarks/copied_whole.py`). Of several in one'
        printf '%s\n' 'sentence, as in a date, some often come out in the wrong place or not at all:' '' '```'
        python benchmarks/copied_whole.py "$INTO" | sed -n '/%/p'
        printf '```\n'
    } >> "$INTO/README.md"
fi
everyday=data/everyday.${model%-*}.txt
if [[ -f $everyday && -z ${DRY_RUN:-} ]]; then
    translated=$(python translate.py "model_folder=$(quoted "$INTO")" < "$everyday")
    known=
    [[ $model != zh-en ]] || known='; who named the domains of the files of daily life knew them'
    {
        printf '\n## Everyday sentences, as they come\n\n%s\n\n' "Chosen before any model was trained$known."
        printf '| source | translation |\n| --- | --- |\n'
        paste -d '|' "$everyday" <(echo "$translated") | sed 's/|/ | /; s/^/| /; s/$/ |/'
    } >> "$INTO/README.md"
fi
