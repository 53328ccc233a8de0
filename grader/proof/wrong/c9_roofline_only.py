"""Takes the peaks of the data sheet for what the GPU achieves.

exercise: C9
public points: 10
hidden points: 10
"""
# file: a1/perfmodel.py


def predict_step_ms(cfg, micro_batch_size, seqlen, recompute=False):
    tokens = micro_batch_size * seqlen
    compute_ms = tokens * flops_per_token(cfg, seqlen) / (COURSE_GPU.peak_tflops * 1e9)
    if recompute:
        compute_ms *= 4 / 3
    memory_ms = 2 * param_count(cfg) / (COURSE_GPU.peak_gbs * 1e6)
    return max(compute_ms, memory_ms) + optimizer_floor_ms(cfg)
