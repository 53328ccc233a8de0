"""The memory curve from a recorded history, and the plots' contents."""

import pandas as pd
import pytest
from matplotlib.figure import Figure

from a1 import memory_curve, plots
from a1.memory_curve import History, curve
from shared.gpus import COURSE_GPU

from .samples import sample_gemm, sample_memory, sample_ops

GIB = 2**30


def events(*changes: float) -> list[dict]:
    """Allocations (positive) and frees in GiB; a free is logged twice, as the allocator does."""
    found = [{"action": "segment_alloc", "size": 99 * GIB}]
    for change in changes:
        if change > 0:
            found.append({"action": "alloc", "size": int(change * GIB)})
        else:
            found.append({"action": "free_requested", "size": int(-change * GIB)})
            found.append({"action": "free_completed", "size": int(-change * GIB)})
    return [*found, {"action": "snapshot", "size": 0}]


def test_the_curve_starts_from_what_was_allocated_before():
    history = History(events(1, 2, -1, -2), before_bytes=10 * GIB, after_bytes=10 * GIB)
    assert curve(history).gib.tolist() == [10, 11, 13, 12, 10]
    assert curve(history).event.tolist() == [0, 1, 2, 3, 4]


def test_an_overflowed_history_is_laid_from_its_end():
    whole = events(1, 2, -1, -2)
    history = History(whole[3:], before_bytes=10 * GIB, after_bytes=10 * GIB, overflowed=True)
    assert curve(history).gib.tolist() == [13, 12, 10]


def test_an_empty_history_is_a_level():
    assert curve(History([], before_bytes=GIB, after_bytes=GIB)).gib.tolist() == [1]


@pytest.mark.parametrize(("capacity", "note"), [(100, ""), (4, "beginning lost: more than 4 entr")])
def test_a_ring_buffer_that_overflowed_is_said(monkeypatch, capacity, note):
    entries = events(1, 2, -1, -2)
    memory = memory_curve.torch.cuda.memory
    monkeypatch.setattr(memory, "_record_memory_history", lambda *_, **__: None)
    monkeypatch.setattr(memory, "_snapshot", lambda: {"device_traces": [entries[-capacity:]]})
    cuda = memory_curve.torch.cuda
    monkeypatch.setattr(cuda, "synchronize", lambda: None)
    monkeypatch.setattr(cuda, "current_device", lambda: 0)
    monkeypatch.setattr(cuda, "memory_allocated", lambda: 10 * GIB)
    seen, said = memory_curve.of_step(lambda: None, max_entries=capacity)
    assert said.startswith(note) and bool(said) == bool(note)
    assert seen.gib.iloc[-1] == 10 and seen.gib.max() <= 13


def texts(figure: Figure) -> str:
    parts = [figure.get_suptitle()]
    for axes in figure.axes:
        parts += [axes.get_title(), axes.get_xlabel(), axes.get_ylabel()]
        parts += [t.get_text() for t in axes.texts]
        parts += [
            t.get_text() for t in (axes.get_legend().get_texts() if axes.get_legend() else [])
        ]
    parts += [t.get_text() for legend in figure.legends for t in legend.get_texts()]
    return "\n".join(parts)


def test_roofline(tmp_path):
    figure = plots.roofline(sample_gemm(), COURSE_GPU, "GEMMs\nNVIDIA H200, 2027-03-01")
    figure.savefig(tmp_path / "roofline.png")
    said = texts(figure)
    for wanted in ("NVIDIA H200, 2027-03-01", "FLOP/byte", "TFLOP/s", "989 TFLOP/s", "4,800 GB/s",
                   "ridge point 206", "lm_head, 2048 × 50304"):  # fmt: skip
        assert wanted in said
    bound = figure.axes[0].lines[-2].get_xydata()
    assert bound[1] == pytest.approx([COURSE_GPU.ridge_flops_per_byte, COURSE_GPU.peak_tflops])


def test_bandwidth(tmp_path):
    figure = plots.bandwidth(sample_ops(), COURSE_GPU, "Operations")
    figure.savefig(tmp_path / "ops.png")
    for wanted in ("bytes moved", "(GB/s)", "memory bandwidth 4,800 GB/s", "L2 cache", "norm"):
        assert wanted in texts(figure)


def test_a_gpu_without_a_data_sheet_still_has_plots(tmp_path):
    plots.roofline(sample_gemm(), None, "GEMMs").savefig(tmp_path / "a.png")
    plots.bandwidth(sample_ops(), None, "Operations").savefig(tmp_path / "b.png")


def test_memory_panels(tmp_path):
    panels: dict[str, pd.DataFrame | str] = {
        "1 micro batch": "out of memory",
        "4 micro batches": sample_memory(4, False),
        "1 micro batch, recomputation": sample_memory(1, True),
        "4 micro batches, recomputation": sample_memory(4, True),
    }
    figure = plots.memory(panels, kept_gib=10.9, state_gib=14.5, title="Memory")
    figure.savefig(tmp_path / "memory.png")
    said = texts(figure)
    for wanted in (*panels, "out of memory", "weights + AdamW's moments: 10.9 GiB",
                   "the same + gradients: 14.5 GiB", "memory allocated (GiB)"):  # fmt: skip
        assert wanted in said
    assert said.count("peak ") == 3
