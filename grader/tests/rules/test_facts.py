"""What the rules know of the scripts and the model is what the scripts and the model do."""

from __future__ import annotations

import pytest

from a1 import bench_gemm, bench_ops, regimes
from a1.perfmodel import flops_per_token, forward_floor_ms, optimizer_floor_ms, state_bytes
from olmoe.config import OlmoeConfig
from shared.gpus import COURSE_GPU, GPUS

from ...rules.bookkeeping import OPS_TENSORS, SHAPES
from ...rules.bounds import REGIMES
from ...rules.experiment import best_of, has_sheet, sheet_of
from ...rules.floors import ABOVE_BANDWIDTH, ABOVE_COMPUTE, Step, operation_ms
from ...rules.floors import flops_per_token as counted_flops
from ...rules.recordings import INSIDE, RECORDED


def test_names_and_sizes_are_the_scripts():
    assert bench_gemm.shapes(OlmoeConfig()) == SHAPES
    assert {op: tensors for op, (tensors, _) in bench_ops.OPS.items()} == OPS_TENSORS
    assert set(regimes.WORKLOADS) == set(REGIMES)


@pytest.mark.parametrize("layers", [1, 4, 16])
@pytest.mark.parametrize("seqlen", [256, 2048])
def test_floors_are_the_performance_models(layers, seqlen):
    """A little below them, since clocks go above the data sheet's."""
    cfg, tokens = OlmoeConfig(n_layers=layers), 8 * seqlen
    step = Step(layers, tokens, seqlen, recompute=False, gpu=COURSE_GPU)
    boost = ABOVE_COMPUTE * COURSE_GPU.max_tflops / COURSE_GPU.peak_tflops
    assert counted_flops(layers, seqlen) == pytest.approx(flops_per_token(cfg, seqlen))
    assert step.forward_ms * boost == pytest.approx(forward_floor_ms(cfg, 8, seqlen)[0])
    assert step.optimizer_ms * ABOVE_BANDWIDTH == pytest.approx(optimizer_floor_ms(cfg))
    assert step.state_gib == pytest.approx(state_bytes(cfg) / 2**30)
    assert step.recompute_ms == 0


def test_recomputation_adds_less_than_a_forward_pass():
    plain, recomputed = (Step(4, 8192, 2048, r, COURSE_GPU) for r in (False, True))
    assert 0 < recomputed.step_ms - plain.step_ms < plain.forward_ms


def test_what_fits_into_the_cache_may_be_faster_than_memory():
    """8 MB at 1.4 times the bandwidth, and a copy of the cache's own size in no time at all."""
    fast_ms = 8e6 / (1.4 * COURSE_GPU.peak_gbs * 1e6)
    assert operation_ms(0, 8e6, COURSE_GPU) <= fast_ms
    assert operation_ms(0, COURSE_GPU.l2_mib * 2**20, COURSE_GPU) == 0
    large = 100 * COURSE_GPU.l2_mib * 2**20
    assert operation_ms(0, large, COURSE_GPU) > 0.9 * large / (COURSE_GPU.peak_gbs * 1e6)


def test_recordings_are_read_from_their_commands():
    assert RECORDED["fwd_large"].micro_batch_size == 32
    assert RECORDED["fwd_large"].layers == 16
    assert RECORDED["train_rc"].recompute and RECORDED["train_rc"].train
    assert RECORDED["train_naive"].naive and RECORDED["train_naive"].seqlen == 2048
    assert set(INSIDE.values()) <= {"step", *INSIDE}


def test_sheets_of_unknown_slices_and_several():
    assert sheet_of("NVIDIA H200 MIG 1g.18gb") == sheet_of("nvidia h200")
    unknown = sheet_of("NVIDIA Something New")
    assert not has_sheet(unknown)
    best = best_of(GPUS)
    assert has_sheet(best)
    for one in GPUS:
        for better in (best, unknown):
            assert better.max_tflops >= one.max_tflops
            assert better.peak_gbs >= one.peak_gbs
            assert better.power_w >= one.power_w
            assert better.max_sm_mhz >= one.max_sm_mhz
    assert not has_sheet(best_of([GPUS[0], unknown]))
