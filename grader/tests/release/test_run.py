"""Where commands run: on a laptop, on a login node, inside a job. Slurm is played by scripts."""

from __future__ import annotations

import pytest

HELLO = ("python", "-c", "print('it ran')")


def test_a_login_node_submits(login_node):
    done = login_node.script("gpu", "test", *HELLO)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "it ran\n"
    asked = login_node.submitted()
    assert {"--partition=interactive", "--gres=gpu:1", "--time=30"} <= set(asked)
    assert any(a.startswith("--job-name=a1-test-") for a in asked)
    assert f"--chdir={login_node.clone}" in asked
    assert "--pty" not in asked and not any(a.startswith("--account") for a in asked)
    assert done.stderr.startswith("This is no GPU node: submitting to interactive on neuronic")


def test_an_exit_status_comes_back_and_srun_does_not_chatter(login_node):
    (login_node.fake / "srun.says").write_text(
        "srun: job 7 queued and waiting for resources\nsrun: job 7 has been allocated resources\n"
    )
    done = login_node.script("gpu", "test", "python", "-c", "print('words'); raise SystemExit(5)")
    assert (done.returncode, done.stdout) == (5, "words\n")
    assert "srun:" not in done.stderr and len(done.stderr.splitlines()) == 1


def test_what_the_command_writes_to_stderr_is_kept(login_node):
    done = login_node.script("gpu", "test", "python", "-c", "import sys; sys.exit('my error')")
    assert done.returncode == 1 and "my error" in done.stderr
    assert "tell the course staff" not in done.stderr


def test_a_job_step_with_a_gpu_runs_directly(login_node):
    done = login_node.script("gpu", "test", *HELLO, inside=True, FAKE_GPU="1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "it ran\n", "")
    assert login_node.submitted() == []


@pytest.mark.parametrize("hidden", ["", "-1", "NoDevFiles"])
def test_a_job_step_whose_gpu_is_hidden_is_told_so(login_node, hidden):
    more = {"FAKE_GPU": "1", "CUDA_VISIBLE_DEVICES": hidden}
    done = login_node.script("gpu", "test", *HELLO, inside=True, **more)
    assert done.returncode == 2 and "This job has no GPU" in done.stderr
    assert done.stdout == "" and login_node.submitted() == []


def test_a_job_step_without_a_gpu_is_told_so(login_node):
    done = login_node.script("gpu", "test", *HELLO, inside=True)
    assert done.returncode == 2 and "--gres=gpu:1" in done.stderr and done.stdout == ""


def test_variables_alone_make_no_job(login_node):
    """Left over from a job that is done: srun must not look for its allocation either."""
    left = {"SLURM_JOB_ID": "99", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "8", "SLURM_CONF": "/x"}
    done = login_node.script("gpu", "test", *HELLO, FAKE_GPU="1", **left)
    assert done.returncode == 0 and login_node.submitted()
    assert (login_node.fake / "srun.env").read_text() == "SLURM_CONF=/x\n"


def test_an_allocation_that_lives_is_used(login_node):
    """After salloc, whose shell is still on the login node."""
    (login_node.fake / "job.state").write_text("RUNNING\n")
    done = login_node.script("gpu", "test", *HELLO, SLURM_JOB_ID="99")
    assert done.returncode == 0 and login_node.submitted()
    assert "SLURM_JOB_ID=99" in (login_node.fake / "srun.env").read_text()


def test_a_gpu_in_a_login_node_tempts_nobody(login_node):
    done = login_node.script("gpu", "test", *HELLO, FAKE_GPU="1")
    assert done.returncode == 0 and login_node.submitted()


def test_the_override(login_node):
    done = login_node.script("gpu", "test", *HELLO, HERE="1")
    assert (done.returncode, done.stdout) == (0, "it ran\n") and login_node.submitted() == []


def test_without_slurm_everything_runs_here(laptop):
    done = laptop.script("gpu", "test", *HELLO)
    assert (done.returncode, done.stdout, done.stderr) == (0, "it ran\n", "")


def test_the_queue_is_shown_while_waiting(login_node):
    (login_node.fake / "squeue.answers").write_text(
        "PENDING|Priority|2027-03-01T14:05:00\nPENDING|Priority|N/A\nRUNNING|None|N/A\n"
    )
    done = login_node.script("gpu", "test", *HELLO, QUEUE_OFFER_S="2", QUEUE_REPEAT_S="600")
    lines = done.stderr.splitlines()
    assert done.returncode == 0 and done.stdout == "it ran\n"
    assert lines[1].startswith("waiting for a GPU since 1 s: Priority, expected to start at")
    assert "2027-03-01 14:05:00; 3 jobs wait in interactive" in lines[1]
    assert "make test TIER=virtual" in lines[2] and len(lines) == 3, done.stderr


SAID = {
    "srun: error: Unable to allocate resources: Invalid partition name specified": "does not have",
    "srun: error: Unable to allocate resources: Invalid generic resource (gres) specification": (
        "does not have"
    ),
    "srun: error: QOSMaxSubmitJobPerUserLimit\nsrun: error: Unable to allocate resources: Job "
    "violates accounting/QOS policy (job submit limit, user's size and/or time limits)": (
        "exit your GPU shell"
    ),
    "srun: error: Unable to allocate resources: Invalid account or account/partition combination "
    "specified": "does not let your account (ada)",
    "srun: error: Unable to allocate resources: Unable to contact slurm controller (connect "
    "failure)": "Slurm does not answer",
    "slurmstepd: error: *** STEP 7.0 ON gpu1 CANCELLED AT 2027-03-01T14:00:00 DUE TO TIME LIMIT "
    "***": "ended after its 30 minutes",
    "slurmstepd: error: *** STEP 7.0 ON gpu1 CANCELLED AT 2027-03-01T14:00:00 ***": "was cancelled",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been "
    "OOM Killed.": "more than its 64 GB",
    "srun: error: Node failure on gpu1": "Run it again",
    "srun: error: something that nobody has seen": "tell the course staff what is said above",
}


@pytest.mark.parametrize("said", SAID)
def test_a_job_that_fails_says_what_to_do(login_node, said):
    (login_node.fake / "srun.says").write_text(f"{said}\n")
    (login_node.fake / "srun.refuses").touch()
    done = login_node.script("gpu", "test", *HELLO)
    assert done.returncode == 1 and done.stdout == ""
    assert said.splitlines()[-1] in done.stderr, "Slurm's own words are gone"
    assert SAID[said] in done.stderr.split(said)[1], done.stderr


def test_a_gpu_shell(login_node):
    done = login_node.run("make", "gpu-shell")
    assert done.returncode == 0, done.stderr
    asked = login_node.submitted()
    assert "--pty" in asked and "--time=120" in asked
    assert asked[-4:] == ["bash", "--rcfile", "slurm/shell.rc", "-i"]


def test_a_shell_has_the_environment_and_says_so(laptop):
    laptop.environ["FAKE_GPU"] = "1"
    done = laptop.run(
        "bash", "--rcfile", "slurm/shell.rc", "-i", "-c", "echo $VIRTUAL_ENV; echo $PS1"
    )
    assert done.stdout.splitlines() == [laptop.environ["VENV"], "(cos568) $"]


def test_values_of_ones_own(login_node):
    (login_node.clone / "slurm" / "local.sh").write_text("PARTITION=mine\nACCOUNT=abc\n")
    assert login_node.script("gpu", "test", *HELLO).returncode == 0
    assert {"--partition=mine", "--account=abc"} <= set(login_node.submitted())


def test_a_batch_job(login_node, tmp_path):
    batch = ("bash", str(login_node.clone / "slurm" / "job.sbatch"))
    done = login_node.run(*batch, *HELLO, inside=True, FAKE_GPU="1")
    assert (done.returncode, done.stdout) == (0, "it ran\n")
    done = login_node.run(*batch, inside=True, FAKE_GPU="1")
    assert done.returncode == 2 and "say what to run" in done.stderr
    elsewhere = {"SLURM_SUBMIT_DIR": str(tmp_path), "FAKE_GPU": "1"}
    done = login_node.run(*batch, *HELLO, inside=True, **elsewhere)
    assert done.returncode == 2 and "top folder of your clone" in done.stderr


def test_without_an_environment(laptop):
    laptop.environ["VENV"] = "/nowhere"
    done = laptop.script("here", *HELLO)
    assert done.returncode == 2 and "VENV=/nowhere" in done.stderr
    del laptop.environ["VENV"]
    done = laptop.script("here", *HELLO)
    assert done.returncode == 2 and "make env" in done.stderr


def test_the_shared_environment_and_paths_of_the_site(laptop, tmp_path):
    users, weights = tmp_path / "users", tmp_path / "weights"
    users.mkdir()
    weights.mkdir()
    (laptop.clone / "slurm" / "local.sh").write_text(
        f"SITE_ENVIRONMENT='{laptop.environ.pop('VENV')}'\nSITE_WEIGHTS='{weights}'\n"
        f"SITE_COURSE_DIR='{users}/{{user}}'\n"
    )
    shown = "import os, sys; print(*map(os.environ.get, sys.argv[1:]))"
    names = ("OLMOE_WEIGHTS", "COURSE_DIR")
    done = laptop.script("here", "python", "-c", shown, *names)
    assert done.stdout.split() == [str(weights), str(users / "ada")], done.stderr
    done = laptop.script("here", "python", "-c", shown, *names, COURSE_DIR="/mine")
    assert done.stdout.split() == [str(weights), "/mine"]


def test_packages_of_the_home_directory_do_not_count(laptop):
    done = laptop.script(
        "here", "python", "-c", "import sys; print(sys.flags.no_user_site, sys.path)",
        PYTHONPATH="/my/packages",
    )  # fmt: skip
    assert done.stdout.startswith("1 ") and "/my/packages" not in done.stdout


def test_virtual_tests_never_ask_slurm(login_node):
    done = login_node.run("make", "test", "C=2", "TIER=virtual")
    assert login_node.submitted() == []
    assert "Total                    0/4" in done.stdout and "Vouched for: 4 points" in done.stdout


def test_make_passes_its_settings_on_to_the_job(login_node):
    done = login_node.run("make", "test", "C=2", "E=7", "TIER=auto")
    assert login_node.submitted()[-6:] == ["--tier", "auto", "--coding", "2", "--experiment", "7"]
    assert "Coding 2 " in done.stdout and "Experiment 7 " in done.stdout
    assert "7 failed" in done.stdout and "srun: error" not in done.stderr


def test_numbers_that_do_not_exist_are_refused(laptop):
    done = laptop.run("make", "test", "C=12", "TIER=virtual")
    assert done.returncode != 0
    assert "C=12: Coding 12 has no tests; give C=1 to C=9" in done.stdout + done.stderr


def test_check_goes_to_a_gpu_too(login_node):
    done = login_node.run("make", "check")
    assert login_node.submitted()[-2:] == ["python", "a1/check.py"]
    assert done.stdout.startswith("COS568 setup check\n[ok] running inside a Slurm job\n")


def test_help_lists_the_targets(laptop):
    shown = laptop.run("make").stdout
    for target in ("check", "test", "gpu-shell", "handin", "env"):
        assert f"  make {target} " in shown
    assert "TIER=virtual" in shown and "HERE=1" in shown
