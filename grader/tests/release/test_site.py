"""The facts of the place where the course runs."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from shared.site import FILE, SiteError, site
from staff.tools.release import words

TEXT = FILE.read_text(encoding="utf-8")


def edited(tmp_path, old: str, new: str):
    assert old in TEXT
    path = tmp_path / "site.toml"
    path.write_text(TEXT.replace(old, new, 1))
    return path


def test_the_file_can_be_read():
    assert site().slurm.interactive_partition and site().paths.course_dir.count("{user}") == 1


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('gpu = ""', 'gpu = "h200; rm -rf"', "gpu = 'h200; rm -rf'"),
        ("cpus = 8", "cpus = 0", "cpus = 0"),
        ("cpus = 8", 'cpu = 8\ncpus = "many"', "cpu"),
        ("cpus = 8", "", "cpus"),
        ('deadline = ""', 'deadline = "soon"', "'soon' is not a time"),
        ('deadline = ""', 'deadline = "2027-03-12T23:59:00+00:00"', "local time"),
        ("America/New_York", "America/Nowhere", "is not known"),
        ('nsys = ""', 'nsys = "nsys"', "absolute path"),
        ("/n/fs/cos568/shared/venv", "/n/$(id)", "a shell would read it otherwise"),
        ("[cluster]", "[clusters]", "clusters"),
        ("[cluster]", "[cluster", "site.toml"),
    ],
)
def test_what_is_impossible_is_named(tmp_path, old, new, says):
    with pytest.raises(SiteError) as error:
        site(edited(tmp_path, old, new))
    assert str(error.value).startswith("site.toml: ") and says in str(error.value)


def test_a_deadline_is_local_time(tmp_path):
    path = edited(tmp_path, 'deadline = ""', 'deadline = "2027-03-12T23:59:00"')
    assert site(path).course.due == datetime(2027, 3, 13, 4, 59, tzinfo=UTC)
    assert datetime.fromisoformat(words(site(path))["due_utc"]) == site(path).course.due


def test_a_kind_of_gpu(tmp_path):
    assert words(site())["gres"] == "gpu:1"
    assert words(site(edited(tmp_path, 'gpu = ""', 'gpu = "h200"')))["gres"] == "gpu:h200:1"
