# shellcheck shell=bash
# For box_model.sh and experiment.sh: chains of commands that each fill a folder of OUT, with a log beside it. Killed at
# any point, the same chain goes on: a stage that is complete is skipped, and one that was begun is resumed by its own
# command. DRY_RUN=1 prints what would be run. Arguments KEY=VALUE are settings of all trainings.
set -euo pipefail
# Ctrl-C reaches the stages at work, too, and they save a checkpoint first.
trap 'wait; echo "interrupted; the same command goes on from here" >&2; exit 130' INT

die() { echo "error: $*" >&2; exit 2; }
quoted() { printf "'%s'" "${1//\'/\\\'}"; } # a path, as Hydra wants it

for name in OUT INTO DATA BASE; do
    [[ -z ${!name:-} ]] || printf -v "$name" %s "$(realpath -m -- "${!name}")"
done
for name in LIMIT JOBS; do
    [[ ${!name:-1} =~ ^[1-9][0-9]*$ ]] || die "$name=${!name}: must be a whole number, at least 1"
done
for setting in "$@"; do
    [[ $setting == [a-z+~]*=* ]] ||
        die "$setting: must be a setting of the trainings, KEY=VALUE; the head of $0 says what else there is"
done
cd "$(dirname "${BASH_SOURCE[0]}")/.."

run() { # a command of Python, which is short
    echo "python ${*@Q}"
    [[ -n ${DRY_RUN:-} ]] || python "$@"
}

stage() { # NAME, its file when it is complete, its file to resume from, PROGRAM SETTING…
    local folder=$OUT/$1 complete=$OUT/$1/$2 begun=$OUT/$1/$3 program=$4 settings
    shift 4
    settings=${*//"$OUT"/OUT}
    if [[ -e $complete || -e $begun ]]; then
        [[ ! -e $folder.settings || $(<"$folder.settings") == "$settings" ]] ||
            die "$folder was begun with other settings than $settings (they are in $folder.settings):" \
                "give another OUT, or move that folder away"
        [[ ! -e $complete ]] || { echo "$folder: complete"; return; }
        set -- "resume=$(quoted "$folder")"
    else
        set -- "$@" "hydra.run.dir=$(quoted "$folder")"
    fi
    echo "python $program ${*@Q}"
    [[ -z ${DRY_RUN:-} ]] || return 0
    mkdir -p "$OUT"
    [[ -e $begun ]] || echo "$settings" > "$folder.settings"
    python "$program" "$@" >> "$folder.log" 2>&1 || {
        tail -n 15 "$folder.log" >&2
        die "$folder is not complete (its log is $folder.log); the same command goes on from here"
    }
}

train() { stage "$1" model/duplexmt.json checkpoints/last.ckpt train.py "${@:2}"; }
evaluate() { stage "$1" scored.json decoding.json evaluate.py "${@:2}"; }

side_by_side() { # FUNCTION ITEM…: of each item, JOBS at a time; all are tried, whichever fails
    local begun=0 ended=0 failed=0 cores item
    cores=$(nproc) # which heeds OMP_NUM_THREADS
    for item in "${@:2}"; do
        ((begun - ended < JOBS)) || { wait -n || failed=1; ended=$((ended + 1)); }
        # A shell lets what it starts with & ignore Ctrl-C.
        (trap - INT; OMP_NUM_THREADS=$((cores > JOBS ? cores / JOBS : 1)) "$1" "$item") &
        begun=$((begun + 1))
    done
    while ((ended < begun)); do wait -n || failed=1; ended=$((ended + 1)); done
    return $failed
}
