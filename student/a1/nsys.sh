#!/usr/bin/env bash
# Records a run of profile_step.py with Nsight Systems and summarizes the recording.
#
#     a1/nsys.sh NAME [arguments of profile_step.py]
#
# Leaves reports/a1/NAME.nsys-rep and results/a1/NAME_*.csv. The environment variable NSYS says which
# nsys to use, if not the one on PATH. With --recorder torch, torch.profiler records instead.
set -euo pipefail

results=results/a1
reports=reports/a1
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-python}
nsys=${NSYS:-nsys}
export PYTHONUNBUFFERED=1

stop() { # message: says it in one line and ends the script
    printf 'nsys.sh: %s\n' "$1" >&2
    exit 1
}

stop_with_lines() { # message, log: the same, under the last lines of what nsys said
    printf -- '--- the last lines of nsys ---\n' >&2
    tail -n 20 -- "$2" >&2 || true
    printf -- '------------------------------\n' >&2
    stop "$1"
}

# --- what to record ---

name=${1:-}
[[ $name =~ ^[A-Za-z0-9_][A-Za-z0-9_.-]*$ ]] ||
    stop "usage: a1/nsys.sh NAME [arguments of profile_step.py]; NAME is of letters, digits and _"
shift
option=
for argument in "$@"; do
    if [[ $argument == --recorder=torch || "$option $argument" == "--recorder torch" ]]; then
        exec "$python" "$here/profile_step.py" --name "$name" "$@"
    fi
    option=$argument
done
command -v -- "$nsys" >/dev/null ||
    stop "no nsys here ('$nsys'): set NSYS to its path, or add --recorder torch to record without it"
NSYS_VERSION=$("$nsys" --version 2>/dev/null | grep -im1 version) || NSYS_VERSION=nsys
export NSYS_VERSION

mkdir -p -- "$results" "$reports" || stop "cannot make the folders $results and $reports"
# Everything is made here first: a recording that fails leaves the last good one as it was.
work=$(mktemp -d "$reports/.$name.XXXXXX") || stop "cannot write in $reports: is the disk full?"
trap 'rm -rf -- "$work"' EXIT
trap 'exit 130' INT TERM
log=$work/log.txt
note=$work/$name.run.json # profile_step.py writes it once the steps are recorded

# --- the recording ---

# The option has been called so since 2024. What `help` prints says whether the counters may be read.
metrics=()
flag=--gpu-metrics-device
"$nsys" profile --help >"$log" 2>&1 || true
if grep -q -e '--gpu-metrics-devices' "$log"; then flag=--gpu-metrics-devices; fi
refused='ERR_NVGPUCTRPERM|[Ii]nsufficient privilege'
unsupported='Illegal --gpu-metrics|None of the installed GPUs|unrecognized option|unknown option'

without_metrics() { # what nsys said
    if grep -qE "$refused" <<<"$1"; then
        echo "note: this node does not let you read the GPU's performance counters;" \
            "recording without GPU metrics."
    else
        echo "note: nsys cannot sample this GPU's performance counters; recording without GPU metrics."
    fi
    metrics=()
}

record() {
    "$nsys" profile --trace=cuda,nvtx --sample=none --cpuctxsw=none \
        ${metrics[@]+"${metrics[@]}"} \
        --capture-range=cudaProfilerApi --capture-range-end=stop \
        --force-overwrite=true --output="$work/$name" \
        "$python" "$here/profile_step.py" --run-note "$note" "$@" 2>&1 | tee "$log"
}

offer=$("$nsys" profile "$flag=help" 2>&1) || true
if grep -qE "$refused|$unsupported" <<<"$offer" && ! grep -qE '^[[:space:]]*all:' <<<"$offer"; then
    without_metrics "$offer"
else
    metrics=("$flag=all")
fi

code=0
record "$@" || code=$?
# nsys may change its mind once it starts. Its own refusal, before our script has run, is repaired.
if ((code != 0)) && ((${#metrics[@]})) && [[ ! -e $note ]] &&
    grep -qE "$refused|$unsupported" "$log"; then
    without_metrics "$(cat -- "$log")"
    code=0
    record "$@" || code=$?
fi

report=$work/$name.nsys-rep
((code != 0)) && [[ ! -e $note ]] &&
    stop "the run ended with exit code $code before anything was recorded; its message is above"
[[ -s $report ]] || stop_with_lines "nsys wrote no recording (exit code $code)" "$log"
((code == 0)) || echo "note: nsys ended with exit code $code, but wrote a recording."

# --- the tables ---

"$nsys" export --type=sqlite --force-overwrite=true --output="$work/$name.sqlite" "$report" \
    >>"$log" 2>&1 || stop_with_lines "nsys could not export the recording" "$log"

# Reports had other names before 2023. Files are named after the report; ours have today's names.
new=(nvtx_gpu_proj_trace cuda_gpu_kern_sum cuda_api_sum)
old=(nvtxgpuproj gpukernsum cudaapisum)
known=$("$nsys" stats --help-reports 2>&1) || known=
chosen=() options=()
for i in "${!new[@]}"; do
    chosen[i]=${new[i]}
    if ! grep -qw -- "${new[i]}" <<<"$known" && grep -qw -- "${old[i]}" <<<"$known"; then
        chosen[i]=${old[i]}
    fi
    options+=(--report "${chosen[i]}")
done
"$nsys" stats "${options[@]}" --format csv --force-overwrite=true --output "$work/$name" \
    "$work/$name.sqlite" >>"$log" 2>&1 || stop_with_lines "nsys could not make its tables" "$log"
for i in "${!new[@]}"; do
    if [[ ${chosen[i]} != "${new[i]}" && -e $work/${name}_${chosen[i]}.csv ]]; then
        mv -- "$work/${name}_${chosen[i]}.csv" "$work/${name}_${new[i]}.csv"
    fi
done

"$python" "$here/ranges.py" --staged --results "$work" --reports "$work" "$name" ||
    stop_with_lines "the recording could not be summarized; nothing called $name was changed" "$log"

# --- into place, now that all of it is there ---

rm -f -- "$log"
mv -f -- "$work/$name".* "$reports/"
mv -f -- "$work/${name}"_*.csv* "$results/"
echo "wrote $results/${name}_ranges.csv"
echo "wrote $reports/$name.nsys-rep and $results/${name}_*.csv"
