"""Data sheets of GPUs, read from gpus.toml, and the GPU of this course.

Plain data: imports neither torch nor a driver, so it works on any machine.
"""

from __future__ import annotations

import math
import re
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path

from shared.assignment import assignment

SHEETS_FILE = Path(__file__).with_name("gpus.toml")


class UnknownGpuError(LookupError):
    """No data sheet has this name or alias; the message lists those there are."""


@dataclass(frozen=True)
class Gpu:
    """What a GPU can do at best. 1 TFLOP/s is 1e12 FLOP/s, and 1 GB/s is 1e9 bytes/s."""

    name: str  # as the driver and torch.cuda.get_device_name report it
    architecture: str
    compute_capability: str
    sms: int  # streaming multiprocessors
    peak_tflops: float  # bf16 on the tensor cores, fp32 accumulate, dense, at `boost_mhz`
    peak_gbs: float  # bandwidth of the GPU's memory
    memory_gib: float  # what torch reports as total memory, a little below the data sheet's
    l2_mib: float
    boost_mhz: int  # the clock for which the vendor states `peak_tflops`
    max_sm_mhz: int  # the highest clock that the driver allows
    power_w: int  # power limit
    aliases: tuple[str, ...] = ()
    source: dict[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self):
        for figure in FIGURES:
            value = getattr(self, figure)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise ValueError(f"{self.name}: {figure} must be a number, not {value!r}")
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{self.name}: {figure} must be positive, not {value!r}")
        if self.max_sm_mhz < self.boost_mhz:
            raise ValueError(f"{self.name}: max_sm_mhz is below boost_mhz")

    @property
    def slug(self) -> str:
        """The name as a folder is called: "NVIDIA H200" is "nvidia-h200"."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")

    @property
    def ridge_flops_per_byte(self) -> float:
        """The arithmetic intensity above which a kernel is compute-bound."""
        return self.peak_tflops * 1e12 / (self.peak_gbs * 1e9)

    @property
    def max_tflops(self) -> float:
        """The peak at the highest clock. A short run can exceed `peak_tflops`, but never this."""
        return self.peak_tflops * self.max_sm_mhz / self.boost_mhz


FIGURES = (
    "sms",
    "peak_tflops",
    "peak_gbs",
    "memory_gib",
    "l2_mib",
    "boost_mhz",
    "max_sm_mhz",
    "power_w",
)


def read_sheets(path: Path = SHEETS_FILE) -> tuple[Gpu, ...]:
    """The GPUs of a TOML file like gpus.toml, in its order.

    Raises ValueError, naming the file and the GPU, when a figure is missing, unknown, not positive,
    or without a source, or when two GPUs answer to one name.
    """
    known = {f.name for f in fields(Gpu)}
    needed = known - {"aliases", "source"}
    gpus, owner = [], {}
    for sheet in tomllib.loads(path.read_text(encoding="utf-8")).get("gpu", []):
        where = f"{path.name}: {sheet.get('name', 'a GPU without a name')}"
        if missing := needed - sheet.keys():
            raise ValueError(f"{where}: missing {', '.join(sorted(missing))}")
        if surplus := sheet.keys() - known:
            raise ValueError(f"{where}: unknown {', '.join(sorted(surplus))}")
        if unsourced := needed - {"name"} - sheet.get("source", {}).keys():
            raise ValueError(f"{where}: no source for {', '.join(sorted(unsourced))}")
        one = Gpu(**{**sheet, "aliases": tuple(sheet.get("aliases", ()))})
        for name in {_plain(n) for n in (one.name, *one.aliases)}:
            if name in owner:
                raise ValueError(f"{where}: {name!r} is also a name of {owner[name]}")
            owner[name] = one.name
        gpus.append(one)
    return tuple(gpus)


def gpu(name: str) -> Gpu:
    """The data sheet of the GPU with this name or alias; case and spacing do not matter.

    Raises UnknownGpuError, which lists the known GPUs.
    """
    for one in GPUS:
        if _plain(name) in (_plain(n) for n in (one.name, *one.aliases)):
            return one
    known = ", ".join(one.name for one in GPUS)
    raise UnknownGpuError(
        f"no data sheet for the GPU {name!r}. Known: {known}. Add it to shared/{SHEETS_FILE.name}."
    )


def _plain(name: str) -> str:
    return " ".join(name.split()).casefold()


GPUS = read_sheets()
COURSE_GPU = gpu(assignment().gpu)  # peaks, truth and limits are this GPU's, wherever one scores
