"""What a recording of a few steps holds, whichever tool made it.

All times are integer nanoseconds on one clock, the recording's own.
"""

from dataclasses import dataclass, field

import numpy as np

COUNTERS = ("sm_active", "tensor_active", "dram_read", "dram_write")


class RecordingError(Exception):
    """A recording that cannot be summarized. The message is for the person who made it."""


@dataclass(frozen=True)
class ProjectedRange:
    """One opening of an NVTX range, projected onto the GPU.

    The projection is the span from the start of the first GPU operation that was launched from
    inside the range, by the thread that opened it, to the end of the last one.
    """

    name: str
    start_ns: int
    end_ns: int
    gpu_ops: int  # kernels, copies and memsets launched inside

    @property
    def span(self) -> tuple[int, int]:
        return self.start_ns, self.end_ns


@dataclass(frozen=True)
class Device:
    """The GPU, as the tool that recorded describes it; None where it does not."""

    name: str
    sms: int | None = None
    clock_mhz: float | None = None
    bandwidth_gbs: float | None = None
    l2_mib: float | None = None

    def __str__(self) -> str:
        figures = (
            (self.sms, "{:.0f} SMs"),
            (self.clock_mhz, "{:.0f} MHz"),
            (self.bandwidth_gbs, "memory bandwidth {:.0f} GB/s"),
            (self.l2_mib, "L2 cache {:.0f} MiB"),
        )
        known = ", ".join(form.format(value) for value, form in figures if value)
        return f"{self.name}: {known}" if known else self.name


@dataclass(frozen=True)
class CounterSamples:
    """The GPU's hardware counters, sampled at regular intervals.

    `percent[c][i]` is counter `c`'s mean from `times_ns[i]` to `times_ns[i + 1]`, 0 to 100.
    """

    times_ns: np.ndarray  # [N + 1], increasing
    percent: dict[str, np.ndarray]  # counter -> [N]

    def means(self, spans: list[tuple[int, int]]) -> dict[str, float | None]:
        """Mean of every counter over the time in `spans`; a sample counts by how much of it is in.

        None where no sample overlaps. Spans shorter than a sample (100 microseconds, as nsys.sh
        records) get a mean that their neighbours share.
        """
        starts, ends = (np.asarray(side, dtype=float) for side in zip(*spans, strict=True))
        first, last = self.times_ns[0], self.times_ns[-1]
        starts, ends = np.clip(starts, first, last), np.clip(ends, first, last)
        covered = float(np.sum(ends - starts))
        if covered <= 0:
            return dict.fromkeys(self.percent)

        widths = np.diff(self.times_ns)
        found = {}
        for counter, values in self.percent.items():
            integral = np.concatenate(([0.0], np.cumsum(widths * values)))
            at = [np.interp(side, self.times_ns, integral) for side in (starts, ends)]
            found[counter] = float(np.sum(at[1] - at[0])) / covered
        return found


@dataclass(frozen=True)
class Recording:
    """Everything that the summary needs."""

    recorder: str  # "nsys", "torch.profiler 2.13.0", ...
    ranges: list[ProjectedRange]
    gpu_ops: list[tuple[int, int]] = field(repr=False)  # start and end of every GPU operation
    device: Device | None = None
    counters: CounterSamples | None = None
