# Where the course runs. Made with the release; a pull may change it.
# Put values of your own into slurm/local.sh, which git ignores: it is read after this file.

COURSE='@course@'
ASSIGNMENT='@assignment@'
CLUSTER='@cluster_name@'

GRES='@gres@'
ACCOUNT='@slurm_account@'
PARTITION='@slurm_interactive_partition@'  # of make test, make check and make gpu-shell
CPUS='@slurm_cpus@'
MEMORY_GB='@slurm_memory_gb@'
TEST_MINUTES='@slurm_test_minutes@'
SHELL_MINUTES='@slurm_shell_minutes@'

SITE_ENVIRONMENT='@paths_environment@'
SITE_WEIGHTS='@paths_weights@'
SITE_COURSE_DIR='@paths_course_dir@'
SITE_NSYS='@paths_nsys@'
DEADLINE='@due_utc@'
