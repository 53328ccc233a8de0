"""What operations are charged: kernels by bytes and FLOPs of the data sheet, views nothing.

The sheet says 1000 GB/s and 10 TFLOP/s: 1000 bytes or 10,000 FLOPs per ns.
"""

import pytest
import torch
import torch.nn.functional as F

from grader.gpu.virtual import costs

MIB = 2**20


def kernels(gpu, run):
    """(operation, ns) of each kernel that `run` launches."""
    with gpu.record(launches=True) as log:
        run()
    return [
        (entry["name"].removeprefix("aten::"), round(entry["duration_ms"] * 1e6))
        for entry in log
        if entry["kind"] == "launch"
    ]


def only_kernel(gpu, run):
    ((_, ns),) = kernels(gpu, run)
    return ns


def test_each_operation_costs_the_host_a_launch(gpu):
    a = torch.ones(4)
    before = gpu.host_ms()
    for _ in range(10):
        a = a + 1
    assert gpu.host_ms() - before == pytest.approx(10 * costs.LAUNCH_NS / 1e6)


def test_a_small_kernel_costs_the_floor(gpu):
    a = torch.ones(4)
    assert only_kernel(gpu, lambda: a + a) == costs.KERNEL_FLOOR_NS


def test_a_large_elementwise_kernel_costs_its_bytes(gpu):
    a, b = torch.ones(8 * MIB, dtype=torch.bfloat16), torch.ones(8 * MIB, dtype=torch.bfloat16)
    assert only_kernel(gpu, lambda: a + b) == round(3 * 16 * MIB / 1000)
    assert only_kernel(gpu, lambda: a.add_(b)) == round(3 * 16 * MIB / 1000)
    assert only_kernel(gpu, a.clone) == round(2 * 16 * MIB / 1000)


def test_a_matrix_product_costs_its_flops(gpu):
    a, b = torch.ones(1024, 512), torch.ones(512, 2048)
    flops = 2 * 1024 * 512 * 2048
    assert only_kernel(gpu, lambda: a @ b) == round(flops / 1e4)
    bias = torch.ones(2048)
    assert only_kernel(gpu, lambda: F.linear(a, b.t(), bias)) == round(flops / 1e4)


def test_a_thin_matrix_product_costs_its_bytes(gpu):
    a, b = torch.ones(1, 2048), torch.ones(2048, 2048)
    assert only_kernel(gpu, lambda: a @ b) == round(4 * (2048 + 2048**2 + 2048) / 1000)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_grouped_product_costs_its_flops_forward_and_backward(gpu, dtype):
    rows, k, n, groups = 512, 512, 1024, 4
    x = torch.ones(rows, k, dtype=dtype, requires_grad=True)
    w = torch.ones(groups, k, n, dtype=dtype, requires_grad=True)
    offs = torch.tensor([128, 128, 300, 512], dtype=torch.int32)
    seen = kernels(gpu, lambda: F.grouped_mm(x, w, offs=offs).pow(2).sum().backward())
    products = [ns for name, ns in seen if name == "_grouped_mm"]
    assert products == [round(2 * rows * k * n / 1e4)] * 3  # forward, for x, for w


@pytest.mark.parametrize(("causal", "share"), [(False, 1), (True, 0.5)])
def test_attention_costs_its_flops_forward_and_backward(gpu, causal, share):
    heads, tokens, width = 4, 512, 64
    q, k, v = (torch.ones(1, heads, tokens, width, requires_grad=True) for _ in range(3))
    seen = kernels(
        gpu, lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal).sum().backward()
    )
    product = 2 * heads * tokens * tokens * width / 1e4 * share
    attention = [ns for name, ns in seen if "attention" in name]
    assert attention == [round(2 * product), round(5 * product)]


def test_the_fused_optimizer_moves_fourteen_bytes_per_bf16_parameter(gpu):
    weight = torch.zeros(4 * MIB, dtype=torch.bfloat16, requires_grad=True)
    weight.grad = torch.ones_like(weight)
    optimizer = torch.optim.AdamW([weight], fused=True)
    optimizer.step()
    seen = dict(kernels(gpu, optimizer.step))
    assert seen["_fused_adamw_"] == pytest.approx(14 * 4 * MIB / 1000, abs=10)


def test_an_embedding_reads_only_its_rows(gpu):
    table, rows = torch.ones(8192, 1024), torch.arange(1024)
    moved = 2 * 1024 * 1024 * 4 + 1024 * 8
    assert only_kernel(gpu, lambda: F.embedding(rows, table)) == round(moved / 1000)
    assert only_kernel(gpu, lambda: table[rows]) == round(moved / 1000)


def test_views_and_empty_tensors_cost_nothing(gpu):
    a = torch.ones(64, 64)
    before = gpu.host_ms()

    def run():
        a.view(-1).reshape(32, 128).t()[1:].unsqueeze(0).expand(2, -1, -1).detach()
        a.chunk(2), a.split(8), a.unbind(0), a.shape, a.stride(), a.size(0)
        torch.empty(100), torch.empty_like(a), a.new_empty(3)

    assert kernels(gpu, run) == []
    assert gpu.host_ms() == before


def test_inference_mode_charges_what_no_grad_does(gpu):
    """In inference mode torch hands a mode whole functions; they are more than one kernel."""
    layer, x = torch.nn.Linear(8, 8), torch.ones(4, 8)

    def run(context):
        def forward():
            with context():
                y = layer(x).reshape(8, 4).contiguous()
                F.cross_entropy(torch.matmul(y, y.T), torch.zeros(8, dtype=torch.long))

        return kernels(gpu, forward)

    assert run(torch.inference_mode) == run(torch.no_grad)


def test_the_meta_device_is_free(gpu):
    assert kernels(gpu, lambda: torch.ones(10**9, device="meta") + 1) == []
    assert gpu.allocated_bytes() == 0


def test_the_host_counts_for_itself(gpu):
    """Numbers that name no device are the host's, as a CUDA program's are."""
    count = torch.tensor(0.0)

    def run():
        count.add_(1)
        assert (count + 1).item() == 2

    assert kernels(gpu, run) == []


def test_many_kernels_add_up_exactly(gpu):
    """Times are integers of nanoseconds."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    gpu.work(1.0)
    start.record()
    for _ in range(10_000):
        gpu.work(0.1)
    end.record()
    torch.cuda.synchronize()
    assert start.elapsed_time(end) == 1000.0
