"""Where the course runs (`site.toml`) as typed, checked records."""

from __future__ import annotations

import re
import tomllib
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

FILE = Path(__file__).with_name("site.toml")
WORD = re.compile(r"[\w.-]*")  # a name that Slurm takes, or none


class SiteError(ValueError):
    """The file says something impossible; the message says where and what."""


@dataclass(frozen=True)
class Course:
    """What the course is called outside the assignment's table."""

    repository: str
    deadline: str  # local time at `timezone`, ISO 8601; "" while it is to be determined
    timezone: str

    def __post_init__(self):
        try:
            zone = ZoneInfo(self.timezone)
        except (ZoneInfoNotFoundError, ValueError):
            raise SiteError(f"[course] timezone {self.timezone!r} is not known") from None
        if self.deadline:
            try:
                given = datetime.fromisoformat(self.deadline)
            except ValueError:
                raise SiteError(f"[course] deadline {self.deadline!r} is not a time") from None
            if given.tzinfo is not None:
                raise SiteError("[course] deadline is local time: leave the offset to `timezone`")
            given.replace(tzinfo=zone)

    @property
    def due(self) -> datetime | None:
        """The deadline as an aware time."""
        if not self.deadline:
            return None
        return datetime.fromisoformat(self.deadline).replace(tzinfo=ZoneInfo(self.timezone))


@dataclass(frozen=True)
class Cluster:
    """The machines."""

    name: str
    nodes: int
    gpus_per_node: int


@dataclass(frozen=True)
class Slurm:
    """What jobs ask for."""

    gpu: str
    account: str
    interactive_partition: str
    batch_partition: str
    test_minutes: int
    shell_minutes: int
    batch_minutes: int
    cpus: int
    memory_gb: int

    def __post_init__(self):
        for key, value in asdict(self).items():
            if isinstance(value, str) and not WORD.fullmatch(value):
                raise SiteError(f"[slurm] {key} = {value!r}: letters, digits, . _ and - only")
            if not isinstance(value, str) and (type(value) is not int or value < 1):
                raise SiteError(f"[slurm] {key} = {value!r}: a whole number above zero is wanted")


@dataclass(frozen=True)
class Paths:
    """Where things lie on the cluster; `{user}` stands for the student's login name."""

    environment: str
    weights: str
    course_dir: str
    nsys: str

    def __post_init__(self):
        for key, value in asdict(self).items():
            if value and not value.startswith("/"):
                raise SiteError(f"[paths] {key} = {value!r}: an absolute path is wanted")
            if set(value) & set("'\"\\`$\n"):
                raise SiteError(f"[paths] {key} = {value!r}: a shell would read it otherwise")


@dataclass(frozen=True)
class Site:
    """The whole file."""

    course: Course
    cluster: Cluster
    slurm: Slurm
    paths: Paths

    def words(self) -> dict[str, str]:
        """Every fact by its name in a template: `slurm.gpu` is "@slurm_gpu@" there."""
        return {
            f"{section}_{key}": str(value)
            for section, facts in asdict(self).items()
            for key, value in facts.items()
        }


@cache
def site(path: Path = FILE) -> Site:
    """Reads the file. Raises SiteError."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        kinds = {"course": Course, "cluster": Cluster, "slurm": Slurm, "paths": Paths}
        return Site(**{section: kinds[section](**facts) for section, facts in table.items()})
    except SiteError as error:
        raise SiteError(f"{path.name}: {error}") from None
    except (tomllib.TOMLDecodeError, TypeError, KeyError) as error:
        raise SiteError(f"{path.name}: {error}") from None
