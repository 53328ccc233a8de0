#!/usr/bin/env bash
# Records, on a machine with the course's GPU, the transcripts that the handout shows and that no
# results file holds: staff/results/a1/transcripts/*.txt. Takes about two minutes.
#
#     staff/handout/record.sh [PYTHON]
#
# Each file begins with the command as a student types it. What is printed is kept as it is, but for
# folders and the progress of nsys.
set -euo pipefail

python=${1:-python}
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$(cd -- "$here/../.." && pwd)
out=$root/staff/results/a1/transcripts
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
mkdir -p -- "$out"
export PYTHONPATH=$root/staff:$root/student:$root PYTHON=$python

record() { # name, command as printed, command as run...
    local name=$1 shown=$2
    shift 2
    (cd -- "$work" && "$@") >"$work/said.txt" 2>"$work/complaints.txt" ||
        { cat -- "$work/complaints.txt" >&2; exit 1; }
    { printf '$ %s\n' "$shown"; cat -- "$work/said.txt"; } |
        sed -e "s#$work/##g" -e "s#$root/##g" >"$out/$name.txt"
    echo "wrote ${out#"$root/"}/$name.txt"
}

script() { # name, arguments of a script under a1/
    local name=$1
    shift
    record "$name" "python a1/$*" "$python" "$root/student/a1/$1" "${@:2}"
}

record three_timings "python three_timings.py" "$python" "$here/examples/three_timings.py"
script micro_batches_example micro_batches.py --layers 2 --global-batch-size 8 --seqlen 1024 \
    --micro-batch-sizes 8 4 1
script stages_example stages.py --layers 2 --micro-batch-size 8 --seqlen 2048 --recompute

demo="demo --layers 4 --micro-batch-size 8 --seqlen 256 --random-weights"
# shellcheck disable=SC2086  # the arguments are words
record demo "a1/nsys.sh $demo" "$root/student/a1/nsys.sh" $demo
# What nsys itself prints, up to our first line, is left out, and where it put its files.
{ head -n 1 "$out/demo.txt"; echo "..."; sed -n '/^one step/,$p' "$out/demo.txt"; } |
    sed -e '/^Generated:/,+1d' >"$work/demo.txt"
mv -- "$work/demo.txt" "$out/demo.txt"
