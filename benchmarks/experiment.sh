#!/usr/bin/env bash
# The experiment: pretrain a base, fine-tune grid, wait-k and offline systems from it alike, and evaluate them.
#
#     SIZE=small benchmarks/experiment.sh                  # conf/experiment/small_*.yaml; or make experiment SIZE=small
#     SIZE=mini DATA=FOLDER JOBS=1 LIMIT=200 benchmarks/experiment.sh        # pairs of your own, one training at a time
#     SIZE=medium JOBS=1 SEEDS=1,2,3 benchmarks/experiment.sh                # each system three times, evaluated as one
#     SYSTEMS=grid,wait3,offline benchmarks/experiment.sh data.max_tokens=24    # some of them, other settings
#
# DATA is a folder of pairs, NAME.….tsv.gz each (else the repository's); BASE a run whose model is the base; LIMIT a number
# of test sentences; QUALITY=neural scores by COMET and BLEURT, too. SYSTEMS may name other models that are in OUT.
# shellcheck source=benchmarks/stages.sh
source "$(dirname "${BASH_SOURCE[0]}")/stages.sh"
SIZE=${SIZE:-small} JOBS=${JOBS:-2} QUALITY=${QUALITY:-basic} SEEDS=${SEEDS:-} extra=("$@")
OUT=${OUT:-$PWD/runs/experiment-$SIZE} tune=${SIZE}_finetune
declare -A recipes=(
    [grid]="experiment=[grid_finetune,$tune]" [grid-past_paper]="experiment=[grid_finetune,$tune,past_paper]"
    # at a fifth of finetune.yaml's rate
    [grid-after_waitk]="experiment=[grid_finetune,$tune,past_paper,after_waitk] training.learning_rate=2e-5"
    [offline]="experiment=[offline_finetune,$tune]"
)
for k in 1 3 5 7 multi; do recipes[wait$k]="experiment=[waitk_finetune,$tune] system.k=$k"; done
every=grid,grid-past_paper,grid-after_waitk,wait1,wait3,wait5,wait7,waitmulti,offline
IFS=, read -ra systems <<< "${SYSTEMS:-$every}"
IFS=, read -ra seeds <<< "${SEEDS:-1}"
all=" ${systems[*]} " models=() first=() last=()
[[ -f conf/experiment/$tune.yaml ]] || die "SIZE=$SIZE: there is no conf/experiment/$tune.yaml"
[[ $QUALITY =~ ^(basic|neural)$ ]] || die "QUALITY=$QUALITY: must be basic or neural"
[[ ${SEEDS:-1} =~ ^[0-9]+(,[0-9]+)*$ ]] || die "SEEDS=$SEEDS: must be whole numbers with commas between"
[[ -z $SEEDS || " $* " != *" training.seed="* ]] || die "give either SEEDS or training.seed=…, not both"
[[ $all != *-after_waitk* || $all == *waitmulti* ]] || die "SYSTEMS: grid-after_waitk starts from waitmulti; add it"
for seed in "${seeds[@]}"; do
    for name in "${systems[@]}"; do
        model=$name-seed$seed model=${model%-seed1} # 1 is the configuration's own
        models+=("$(quoted "$OUT/$model/model")")
        case ${recipes[$name]:-none} in
        none) [[ -e $OUT/$model/model ]] || die "SYSTEMS: there is no $name; choose of $every, or train $OUT/$model" ;;
        *after_waitk*) last+=("$model") ;;
        *) first+=("$model") ;;
        esac
    done
done
[[ $all == *" grid"* ]] || die "SYSTEMS=$SYSTEMS: one must be a grid, which the others are compared with"

pairs=(data=permissive) base=("experiment=[base_pretrain,${SIZE}_base]")
[[ -z ${DATA:-} ]] || pairs=("data.path=$(quoted "$DATA")")
# The repository has fewer pairs than a small base takes: all of them, as often as makes about as many steps.
[[ -n ${DATA:-} || $SIZE != small ]] || base+=(data.train_size=null trainer.max_epochs=2)
[[ -n ${BASE:-} ]] || train base "${base[@]}" "${pairs[@]}" "$@"

fine_tune() { # a model
    local from=${BASE:-$OUT/base} seed=() recipe
    read -ra recipe <<< "${recipes[${1%-seed*}]}"
    [[ $1 != *-seed* ]] || seed=("training.seed=${1##*-seed}")
    [[ $1 != grid-after_waitk* ]] || from=$OUT/waitmulti${1#grid-after_waitk}
    train "$1" "${recipe[@]}" "model.backbone=$(quoted "$from/model")" "${pairs[@]}" "${extra[@]}" "${seed[@]}"
}
side_by_side fine_tune "${first[@]}"
side_by_side fine_tune "${last[@]}"

own=${SYSTEMS:+-of-${SYSTEMS//,/-}}${SEEDS:+-seeds-${SEEDS//,/-}}${LIMIT:+-limit-$LIMIT}
[[ $QUALITY == basic ]] || own+=-$QUALITY
options=("quality=$QUALITY" 'policy.theta=[0.1,0.2,0.3,0.5,0.6,0.7,0.8,0.9,0.95,0.99]' ${LIMIT:+"limit=$LIMIT"})
((${#seeds[@]} == 1)) || options+=(over_seeds=true)
[[ $all == *" offline "* || $all == *" waitmulti "* ]] || options+=('agreement=[]') # local agreement runs on these
evaluate "evaluation$own" experiment=duplex_results "${options[@]}" "model_folder=[$(IFS=,; echo "${models[*]}")]"
[[ -n ${DRY_RUN:-} ]] || cat "$OUT/evaluation$own/results.md"
