"""Mistakes in Experiment 2."""

from __future__ import annotations

from pathlib import Path

from .mistake import edited, keep, mistake, ran_on, swapped

TIMED, WARM_UP = 30, 5  # calls of each GEMM


def _gemm_rates(frame) -> None:
    """TFLOP/s and GB/s anew, as the script divides by the times that it was given."""
    m, k, n = frame["m"], frame["k"], frame["n"]
    frame["tflops"] = 2 * m * k * n / frame["ms"] / 1e9
    frame["gbs"] = 2 * (m * k + k * n + m * n) / frame["ms"] / 1e6


@mistake("E2", "gemm_under_the_roofline")
def gemm_without_a_sync(folder: Path) -> None:
    """Timed the launches: `cuda_time` reads the CPU's clock and never waits for the GPU."""
    with edited(folder, "gemm.csv") as frame:
        frame["ms"] = [0.009 + 0.001 * (i % 3) for i in range(len(frame))]
        _gemm_rates(frame)


@mistake("E2", "gemm_under_the_roofline")
def gemm_divided_twice(folder: Path) -> None:
    """Divided by the number of calls twice: once in `cuda_time`, once afterwards."""
    with edited(folder, "gemm.csv") as frame:
        frame["ms"] /= TIMED
        _gemm_rates(frame)


@mistake("E2", "gemm_under_the_roofline")
def gemm_in_seconds(folder: Path) -> None:
    """`cuda_time` returns seconds, and every rate is computed from them."""
    with edited(folder, "gemm.csv") as frame:
        frame["ms"] /= 1e3
        _gemm_rates(frame)


@mistake("E2", "gemm_under_the_roofline")
def gemm_in_microseconds(folder: Path) -> None:
    """`cuda_time` returns microseconds, and every rate is computed from them."""
    with edited(folder, "gemm.csv") as frame:
        frame["ms"] *= 1e3
        _gemm_rates(frame)


@mistake("E2", "more_rows_take_longer")
def gemm_with_the_first_call(folder: Path) -> None:
    """Took the mean of all calls, warm-up included: the first one loads the library."""
    with edited(folder, "gemm.csv") as frame:
        frame.loc[0, "ms"] += 300 / (TIMED + WARM_UP)
        _gemm_rates(frame)


@mistake("E2", "rates_follow_from_times")
def gemm_columns_swapped(folder: Path) -> None:
    """Put the file together by hand, with the columns of TFLOP/s and GB/s the wrong way round."""
    with edited(folder, "gemm.csv") as frame:
        swapped(frame, "tflops", "gbs")


@mistake("E2", "rates_follow_from_times")
def gemm_bytes_of_fp32(folder: Path) -> None:
    """Coding 2 counts four bytes per number."""
    with edited(folder, "gemm.csv") as frame:
        frame["gbs"] *= 2
        frame["intensity"] /= 2


@mistake("E2", "rates_follow_from_times")
def gemm_counts_multiply_adds(folder: Path) -> None:
    """Coding 2 counts a multiply-add as one FLOP."""
    with edited(folder, "gemm.csv") as frame:
        frame["tflops"] /= 2
        frame["intensity"] /= 2


@mistake("E2", "shapes_are_the_models")
def gemm_of_the_transposed_matrix(folder: Path) -> None:
    """Took gate_proj's shape for down_proj's."""
    with edited(folder, "gemm.csv") as frame:
        down = frame["shape"] == "expert down_proj"
        frame.loc[down, ["k", "n"]] = frame.loc[down, ["n", "k"]].to_numpy()
        _gemm_rates(frame)


@mistake("E2", "rows_are_there")
def half_the_gemms(folder: Path) -> None:
    """Handed in what a first, interrupted run had measured."""
    keep(folder, "gemm.csv", lambda frame: frame.index < len(frame) // 2)


@mistake("E2", "gemm_under_the_roofline")
def gemm_of_another_machine(folder: Path) -> None:
    """Copied the table of a faster machine over the own one; the sidecar is the own run's."""
    ran_on(folder, "gemm.csv", "NVIDIA L40")


@mistake("E2", "sustained_under_the_peak")
def sustained_counts_twice(folder: Path) -> None:
    """Counted the calls of two groups in each."""
    with edited(folder, "gemm_sustained.csv") as frame:
        frame["tflops"] *= 2


@mistake("E2", "groups_are_of_equal_work")
def sustained_in_milliseconds(folder: Path) -> None:
    """Milliseconds in the column of seconds."""
    with edited(folder, "gemm_sustained.csv") as frame:
        frame["seconds"] *= 1e3


@mistake("E2", "sustained_long_enough")
def sustained_interrupted(folder: Path) -> None:
    """Pressed Ctrl-C after two of the six seconds."""
    keep(folder, "gemm_sustained.csv", lambda frame: frame["seconds"] < 2)


@mistake("E2", "clocks_and_power_possible")
def clock_and_power_swapped(folder: Path) -> None:
    """Clock and power the wrong way round."""
    with edited(folder, "regimes.csv") as frame:
        swapped(frame, "clock_mhz", "power_w")


@mistake("E2", "clocks_and_power_possible")
def power_in_milliwatts(folder: Path) -> None:
    """Wrote power as NVML reports it, in mW."""
    with edited(folder, "gemm_sustained.csv") as frame:
        frame["power_w"] *= 1e3


@mistake("E2", "clocks_and_power_possible")
def clock_in_gigahertz(folder: Path) -> None:
    """Wrote the clock in GHz."""
    with edited(folder, "gemm_sustained.csv") as frame:
        frame["clock_mhz"] /= 1e3


@mistake("E2", "regimes_under_the_roofline")
def regimes_in_seconds(folder: Path) -> None:
    """`cuda_time` returns seconds."""
    with edited(folder, "regimes.csv") as frame:
        frame["ms"] /= 1e3


@mistake("E2", "ops_under_the_bandwidth")
def ops_without_a_sync(folder: Path) -> None:
    """Timed the launches."""
    with edited(folder, "ops.csv") as frame:
        frame["ms"] = [0.004 + 0.001 * (i % 4) for i in range(len(frame))]
        frame["gbs"] = frame["bytes_moved"] / frame["ms"] / 1e6


@mistake("E2", "bytes_are_the_tensors")
def ops_move_one_tensor(folder: Path) -> None:
    """Counted what is read and forgot what is written."""
    with edited(folder, "ops.csv") as frame:
        frame["bytes_moved"] -= frame["tensor_bytes"]
        frame["gbs"] = frame["bytes_moved"] / frame["ms"] / 1e6


@mistake("E2", "more_bytes_take_longer")
def ops_with_the_first_call(folder: Path) -> None:
    """Took the mean of all calls, and the first one loads the kernel."""
    with edited(folder, "ops.csv") as frame:
        frame.loc[:3, "ms"] += 200 / (TIMED + WARM_UP)
        frame["gbs"] = frame["bytes_moved"] / frame["ms"] / 1e6
