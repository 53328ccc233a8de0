#!/usr/bin/env bash
# Runs a command of this course where it belongs. The Makefile and job.sbatch call it:
#
#     slurm/run.sh here COMMAND ...         on this machine, with the environment loaded
#     slurm/run.sh gpu NAME COMMAND ...     on a GPU: here, or through Slurm if this is a login node
#     slurm/run.sh shell                    a shell on a GPU node
#     slurm/run.sh handin [--dry-run | --status]
#
# HERE=1 runs on this machine whatever it is. It is for machines that the guard below takes for a login
# node by mistake. Never use it on one: login nodes are everybody's.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
source slurm/environment.sh

POLL_S=${QUEUE_POLL_S:-10}       # how often the queue is asked
REPEAT_S=${QUEUE_REPEAT_S:-60}   # how often an answer that has not changed is shown again
OFFER_S=${QUEUE_OFFER_S:-30}     # when waiting this long, doing without a GPU is offered

say() { printf '%s\n' "$*" >&2; }

# ---- The guard: may GPU work run on this machine? -----------------------------------------------

in_job_step() { # Slurm's own daemon started us; a variable could be left over or copied
    local pid=$$ name
    while ((pid > 1)) && [[ -r /proc/$pid/stat ]]; do
        read -r name <"/proc/$pid/comm" || return 1
        [[ $name == slurmstepd ]] && return 0
        pid=$(sed 's/^.*) [A-Za-z] \([0-9]*\) .*$/\1/' "/proc/$pid/stat") # the parent's
    done
    grep -qsE '/job_[0-9]+(/|$)' /proc/self/cgroup # adopted into a job: by ssh, or in a container
}

usable_gpu() { # nvidia-smi lists one, and nothing hides it
    [[ ${CUDA_VISIBLE_DEVICES-all} =~ ^(|-1|NoDevFiles)$ ]] && return 1
    local listed
    listed=$(nvidia-smi -L 2>/dev/null) && [[ $listed == GPU* ]]
}

place() { # here, submit, or no-gpu
    if [[ -n ${HERE:-} ]]; then
        echo here
    elif in_job_step; then
        if usable_gpu; then echo here; else echo no-gpu; fi
    elif command -v srun >/dev/null; then
        echo submit
    else
        echo here
    fi
}

# ---- Submitting ---------------------------------------------------------------------------------

allocation_is_over() { # after `salloc` srun uses its allocation, while there is one
    [[ -n ${SLURM_JOB_ID:-} && $(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%T 2>/dev/null) != RUNNING ]]
}

watch_queue() { # job name: says what Slurm says, until the job runs
    local waited_s=0 shown_s=0 offered='' last='' nap='' state reason start line
    trap 'kill $nap 2>/dev/null; exit' TERM # a sleep that is left over would hold our output open
    while true; do
        sleep "$POLL_S" &
        nap=$!
        wait "$nap"
        waited_s=$((waited_s + POLL_S))
        line=$(squeue --noheader --user="$me" --name="$1" --format='%T|%r|%S' 2>/dev/null | head -n 1)
        IFS='|' read -r state reason start <<<"$line"
        [[ $state == RUNNING || $state == COMPLETING ]] && return
        [[ $state == PENDING ]] || continue
        if [[ $reason != "$last" ]] || ((waited_s - shown_s >= REPEAT_S)); then
            last=$reason shown_s=$waited_s
            local ahead expected=
            ahead=$(squeue --noheader --partition="$PARTITION" --states=PENDING 2>/dev/null | wc -l)
            [[ $start == *T* ]] && expected=", expected to start at ${start/T/ }"
            say "waiting for a GPU since $waited_s s: $reason$expected; $((ahead)) jobs wait in $PARTITION (Ctrl-C gives up)"
        fi
        if [[ $1 == *-test-* && -z $offered ]] && ((waited_s >= OFFER_S)); then
            offered=yes
            say "In a hurry? \`make test TIER=virtual\` runs here at once, without a GPU, and says what it vouches for."
        fi
    done
}

explain() { # what srun said, minutes: what to do about it
    local said=$1 minutes=$2 again="Run it again; if that does not help, tell the course staff what is said above."
    local virtual="\`make test TIER=virtual\` needs neither Slurm nor a GPU."
    case $said in
    *"TIME LIMIT"* | *"time limit"*cancelled*)
        say "The job was ended after its $minutes minutes. What takes longer belongs into a batch job:"
        say "sbatch slurm/job.sbatch COMMAND. If it was \`make test\`: does a loop of yours never end?" ;;
    *[Oo]"ut "[Oo]"f "[Mm]emory* | *"OUT OF MEMORY"* | *oom*kill*)
        say "The job used more than its $MEMORY_GB GB of (host) memory and was ended. What does your code keep?" ;;
    *QOSMax* | *AssocMax* | *AssocGrp* | *"accounting/QOS policy"* | *MaxJobs* | *"limit"*"exceeded"*)
        say "You already use what one person may in $PARTITION. See \`squeue --me\`; exit your GPU shell, or"
        say "\`scancel JOBID\` what you do not need, and run it again. $virtual" ;;
    *"nvalid account"* | *"nvalid user"* | *"ser not found"* | *"not permitted to use"* | *"ccess denied"* | *"ccess/permission denied"*)
        say "Slurm does not let your account ($me) use $PARTITION: tell the course staff. $virtual" ;;
    *"nvalid partition"* | *"nvalid generic resource"* | *"node configuration is not available"* | *"nvalid time limit"* | *"time limit is invalid"* | *"nvalid qos"*)
        say "slurm/site.sh asks for something that $CLUSTER does not have: tell the course staff. $virtual" ;;
    *"nable to contact"* | *"ocket timed out"* | *"onnection refused"* | *"ontroller"*)
        say "Slurm does not answer. Wait some minutes and run it again. $virtual" ;;
    *"ode fail"* | *NODE_FAIL* | *"NODE FAILURE"*)
        say "The GPU node failed while the job ran; that is not your doing. Run it again." ;;
    *CANCELLED* | *evoked* | *reempt*)
        say "The job was cancelled, by you, by the staff, or for a more urgent one. Run it again when you like." ;;
    *) say "$again" ;;
    esac
}

# What srun says on every run, and what says no more than an exit status.
CHATTER='^srun: (job [0-9]+ (queued and waiting|has been allocated)|error: .*: task 0: Exited with exit code)'

submit() { # name, minutes, extra options of srun up to --, command ...
    local name="$ASSIGNMENT-$1-$$" minutes=$2 options=() status watcher said
    shift 2
    while [[ $1 != -- ]]; do options+=("$1") && shift; done
    shift
    [[ -n $ACCOUNT ]] && options+=(--account="$ACCOUNT")
    if allocation_is_over; then
        for left_over in "${!SLURM_@}"; do [[ $left_over == SLURM_CONF ]] || unset "$left_over"; done
    fi
    said=$(mktemp "${TMPDIR:-/tmp}/srun.XXXXXX")
    say "This is no GPU node: submitting to $PARTITION on $CLUSTER (one GPU, at most $minutes minutes) ..."
    watch_queue "$name" &
    watcher=$!
    # shellcheck disable=SC2064
    trap "kill $watcher 2>/dev/null || true; rm -f -- '$said'" EXIT
    set +e
    {
        srun --job-name="$name" --partition="$PARTITION" --gres="$GRES" --time="$minutes" \
            --cpus-per-task="$CPUS" --mem="${MEMORY_GB}G" --chdir="$PWD" ${options[@]+"${options[@]}"} "$@" \
            2>&1 >&3 3>&- | (trap '' INT; tee -- "$said") |
            (trap '' INT; grep --line-buffered -vE "$CHATTER" >&2)
        status=${PIPESTATUS[0]}
    } 3>&1
    set -e
    local errors
    errors=$(grep -E '^(srun|slurmstepd): ' "$said" | grep -vE "$CHATTER" || true)
    if ((status != 0)) && [[ -n $errors ]]; then explain "$errors" "$minutes"; fi
    return "$status"
}

# ---- Commands -----------------------------------------------------------------------------------

need_environment() {
    [[ -n $environment ]] && return
    python -c 'import torch, pytest' 2>/dev/null && return
    say "There is no Python environment here: $SITE_ENVIRONMENT does not exist, and neither does .venv."
    say "On $CLUSTER, tell the course staff. On a machine of your own, \`make env\` makes one; VENV=DIR names another."
    exit 2
}

run_here() {
    need_environment
    exec "$@"
}

gpu() { # name, command ...
    local name=$1 minutes=$TEST_MINUTES
    shift
    case $(place) in
    here) run_here "$@" ;;
    no-gpu)
        say "This job has no GPU that can be used: start it with --gres=$GRES, or leave it and run this again."
        exit 2 ;;
    submit) submit "$name" "$minutes" -- bash slurm/run.sh here "$@" ;;
    esac
}

gpu_shell() {
    case $(place) in
    submit)
        submit shell "$SHELL_MINUTES" --pty -- bash --rcfile slurm/shell.rc -i || true ;;
    *)
        usable_gpu || say "note: there is no GPU that can be used on this machine."
        bash --rcfile slurm/shell.rc -i || true ;;
    esac # the exit status of a shell is that of its last command: no news
}

hand_in() { # options: with any Python, for login nodes may have an old one
    local out=${COURSE_DIR:-.}/handin/$ASSIGNMENT python=python
    [[ -n $environment ]] || python=python3
    if [[ ${1:-} == --status ]]; then
        exec "$python" -m shared.received "$out" --deadline "$DEADLINE"
    fi
    "$python" handin.py --output "$out" "$@" || exit
    if [[ -z ${COURSE_DIR:-} && ${1:-} != --dry-run ]]; then
        say "note: this machine has no course directory, so nobody has received this. Run it on $CLUSTER."
    fi
}

case ${1:-} in
here) shift && run_here "$@" ;;
gpu) shift && gpu "$@" ;;
shell) gpu_shell ;;
handin) shift && hand_in "$@" ;;
*)
    sed -n '2,10p' "${BASH_SOURCE[0]}" >&2
    exit 2 ;;
esac
