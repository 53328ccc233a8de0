# Read by the scripts in this folder, in the clone's top folder: finds the environment, the checkpoint
# and your course directory. What you have set yourself (VENV, OLMOE_WEIGHTS, COURSE_DIR, NSYS) stays.

# shellcheck source=/dev/null
source slurm/site.sh
if [[ -f slurm/local.sh ]]; then source slurm/local.sh; fi

environment= # the folder of a Python environment; empty if there is none
if [[ -n ${VENV:-} ]]; then
    if [[ ! -x $VENV/bin/python ]]; then
        printf 'VENV=%s: there is no bin/python in it\n' "$VENV" >&2
        exit 2
    fi
    environment=$(cd -- "$VENV" && pwd)
elif [[ -x .venv/bin/python ]]; then
    environment=$PWD/.venv
elif [[ -x $SITE_ENVIRONMENT/bin/python ]]; then
    environment=$SITE_ENVIRONMENT
fi
if [[ -n $environment ]]; then
    export VIRTUAL_ENV=$environment PATH=$environment/bin:$PATH
fi

# Packages that a home directory happens to hold are no part of the environment.
export PYTHONNOUSERSITE=1 PYTHONUNBUFFERED=1
unset PYTHONPATH PYTHONHOME

me=${USER:-$(id -un)}
if [[ -z ${OLMOE_WEIGHTS:-} && -d $SITE_WEIGHTS ]]; then export OLMOE_WEIGHTS=$SITE_WEIGHTS; fi
course_dir=${SITE_COURSE_DIR//'{user}'/$me}
# On the course's machines, whether or not this account has a directory yet.
if [[ -z ${COURSE_DIR:-} && -n $course_dir && -d ${course_dir%/*} ]]; then
    export COURSE_DIR=$course_dir
fi
if [[ -z ${NSYS:-} && -n $SITE_NSYS ]]; then export NSYS=$SITE_NSYS; fi
