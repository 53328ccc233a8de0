"""The same by somebody who has read the rules about the timer's tick, and keeps it.

Not what we expect of students; what is left of the rules when the strongest one is known.
"""

from __future__ import annotations

import numpy as np

from . import copies, edits, formulas
from .forge import TIMES, Folder
from .honest import ticks


def in_ticks(folder: Folder) -> None:
    """Round every measured time to what the timer can give, where six digits show it."""
    for name, columns in TIMES.items():
        if not folder.has(name):
            continue
        frame = folder.frame(name)
        for column in columns:
            ms = frame[column].to_numpy(float)
            frame[column] = np.where(ms < 10, ticks(ms, even=column in ("ms", "step_ms")), ms)
        folder.write(name, frame)


def roofline_formula_in_ticks(folder: Folder, other: Folder) -> None:
    """`roofline_times_efficiency`, in ticks."""
    formulas.roofline_times_efficiency(folder, other)
    in_ticks(folder)


def gaussian_noise_in_ticks(folder: Folder, other: Folder) -> None:
    """`formula_with_gaussian_noise`, in ticks."""
    formulas.formula_with_gaussian_noise(folder, other)
    in_ticks(folder)


def sorted_noise_in_ticks(folder: Folder, other: Folder) -> None:
    """`sorted_noise`, in ticks."""
    formulas.sorted_noise(folder, other)
    in_ticks(folder)


def linear_in_tokens_in_ticks(folder: Folder, other: Folder) -> None:
    """`linear_in_tokens`, in ticks."""
    formulas.linear_in_tokens(folder, other)
    in_ticks(folder)


def scaled_in_ticks(folder: Folder, other: Folder) -> None:
    """`scaled_from_another_gpu`, in ticks."""
    edits.scaled_from_another_gpu(folder, other)
    in_ticks(folder)


def edited_steps_in_ticks(folder: Folder, other: Folder) -> None:
    """`edited_steps`, in ticks."""
    edits.edited_steps(folder, other)
    in_ticks(folder)


def interpolated_gemms_in_ticks(folder: Folder, other: Folder) -> None:
    """`interpolated_gemms`, in ticks."""
    edits.interpolated_gemms(folder, other)
    in_ticks(folder)


def copied_and_stirred_in_ticks(folder: Folder, other: Folder) -> None:
    """`copied_and_stirred`, in ticks."""
    copies.copied_and_stirred(folder, other)
    in_ticks(folder)
