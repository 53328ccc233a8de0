"""Coding 2: `gemm_flops`, `gemm_bytes`, `roofline_tflops`."""

from dataclasses import dataclass

from gradescope_utils.autograder_utils.decorators import number, weight

from shared.gpus import COURSE_GPU, Gpu

from ..exact import check_numbers
from .counts import sample_gpu

CASES = 8
WORKED = (
    16,
    2048,
    2048,
)  # the worked example of the assignment: 134 million FLOPs, 8.5 million bytes


def _shapes(draw) -> list[tuple[int, int, int]]:
    """GEMMs whose three sizes are far from one another."""
    some = [
        [draw.randint(9, 90), draw.randint(200, 900), draw.randint(2000, 9000)]
        for _ in range(CASES)
    ]
    for shape in some:
        draw.shuffle(shape)
    return [WORKED, *(tuple(shape) for shape in some)]


def _check_gemm(probe, function, shapes, right, mistakes):
    seen = probe("perfmodel.values", function=function, calls=[list(s) for s in shapes])
    check_numbers(
        [f"{function}{shape}" for shape in shapes],
        seen,
        [right(*shape) for shape in shapes],
        [(words, lambda i, f=f: f(*shapes[i])) for words, f in mistakes],
    )


def _multiply_adds(m, k, n):
    """A dot product of k numbers for each of the m * n elements of C."""
    return sum(k for _ in range(m)) * n


def _numbers(*matrices):
    return sum(rows * columns for rows, columns in matrices)


@number("C2.1")
@weight(1)
def test_flops_of_a_gemm(probe, draw):
    """gemm_flops counts 2 FLOPs for every multiply-add."""
    mistakes = [
        (
            "gemm_flops counts a multiply-add as one FLOP: it is two, a multiplication and an "
            "addition",
            _multiply_adds,
        ),
        (
            "gemm_flops returns the bytes that the GEMM moves, not its arithmetic",
            lambda m, k, n: 2 * _numbers((m, k), (k, n), (m, n)),
        ),
        (
            "gemm_flops counts three FLOPs for a multiply-add: it is two",
            lambda m, k, n: 3 * _multiply_adds(m, k, n),
        ),
        (
            "gemm_flops leaves out the first addition of each dot product: every multiply-add "
            "counts as 2 FLOPs, the first too",
            lambda m, k, n: 2 * _multiply_adds(m, k, n) - m * n,
        ),
    ]
    _check_gemm(
        probe, "gemm_flops", _shapes(draw), lambda m, k, n: 2 * _multiply_adds(m, k, n), mistakes
    )


@number("C2.2")
@weight(1)
def test_bytes_of_a_gemm(probe, draw):
    """gemm_bytes counts A and B read once and C written once, in bf16."""
    mistakes = [
        (
            "gemm_bytes counts four bytes per number: bf16 has two",
            lambda m, k, n: 4 * _numbers((m, k), (k, n), (m, n)),
        ),
        (
            "gemm_bytes counts numbers, not bytes: a bf16 number has two",
            lambda m, k, n: _numbers((m, k), (k, n), (m, n)),
        ),
        (
            "gemm_bytes leaves out C, which has to be written",
            lambda m, k, n: 2 * _numbers((m, k), (k, n)),
        ),
        (
            "gemm_bytes leaves out A, which has to be read",
            lambda m, k, n: 2 * _numbers((k, n), (m, n)),
        ),
        (
            "gemm_bytes leaves out B, which has to be read",
            lambda m, k, n: 2 * _numbers((m, k), (m, n)),
        ),
        (
            "gemm_bytes counts C twice: it is written once, and not read",
            lambda m, k, n: 2 * _numbers((m, k), (k, n), (m, n), (m, n)),
        ),
        (
            "gemm_bytes returns the FLOPs of the GEMM, not the bytes that it moves",
            lambda m, k, n: 2 * _multiply_adds(m, k, n),
        ),
    ]
    _check_gemm(
        probe,
        "gemm_bytes",
        _shapes(draw),
        lambda m, k, n: 2 * _numbers((m, k), (k, n), (m, n)),
        mistakes,
    )


@dataclass(frozen=True)
class Kernel:
    """A kernel, the GPU that it runs on, and how `roofline_tflops` is called for it."""

    flops: int
    nbytes: int
    gpu: Gpu
    named: bool  # whether the GPU is passed; if not, it is the default

    @property
    def arguments(self) -> list:
        gpu = {"peak_tflops": self.gpu.peak_tflops, "peak_gbs": self.gpu.peak_gbs}
        return [self.flops, self.nbytes, *([{"gpu": gpu}] if self.named else [])]

    def __str__(self) -> str:
        gpu = (
            f"a GPU of {self.gpu.peak_tflops:g} TFLOP/s and {self.gpu.peak_gbs:g} GB/s"
            if self.named
            else f"the course's GPU, {self.gpu.name}"
        )
        return f"roofline_tflops({self.flops:,}, {self.nbytes:,}) on {gpu}"

    def at(self, gpu: Gpu) -> tuple[float, float]:
        """(peak compute, what its bandwidth allows), TFLOP/s."""
        seconds = self.nbytes / (gpu.peak_gbs * 1e9)
        return gpu.peak_tflops, self.flops / seconds / 1e12

    @property
    def bounds(self) -> tuple[float, float]:
        return self.at(self.gpu)


def _kernels(draw) -> list[Kernel]:
    """Kernels on both sides of the ridge point, on a GPU of the test and on the course's."""
    kernels = []
    for i in range(CASES):
        named = i not in (0, 3)  # otherwise the GPU is left to be the default
        gpu = sample_gpu(draw) if named else COURSE_GPU
        nbytes = draw.randint(10**6, 10**9)
        # The lowest are so low that a bound a thousand times too high still binds.
        of_ridge = draw.uniform(*[(1.7, 40), (1e-4, 5e-4), (4, 90), (0.02, 0.6)][i % 4])
        flops = round(nbytes * gpu.ridge_flops_per_byte * of_ridge)
        kernels.append(Kernel(flops, nbytes, gpu, named))
    return kernels


@number("C2.3")
@weight(2)
def test_roofline(probe, draw):
    """roofline_tflops is the lower of the two bounds, for the GPU it is given."""
    kernels = _kernels(draw)
    calls = [k.arguments for k in kernels]
    seen = probe("perfmodel.values", function="roofline_tflops", calls=calls)
    mistakes = [
        (
            "roofline_tflops returns the higher of the two bounds: a kernel must respect both, so "
            "the lower one binds",
            lambda k: max(k.bounds),
        ),
        (
            "roofline_tflops always returns the peak compute: below the ridge point the bandwidth "
            "binds",
            lambda k: k.bounds[0],
        ),
        (
            "roofline_tflops always returns what the bandwidth allows: no kernel exceeds the peak "
            "compute",
            lambda k: k.bounds[1],
        ),
        (
            "roofline_tflops mixes units: intensity x GB/s is GFLOP/s, a thousandth of a TFLOP/s",
            lambda k: min(k.bounds[0], k.bounds[1] * 1e3),
        ),
        (
            "roofline_tflops returns FLOP/s: it should return TFLOP/s",
            lambda k: min(k.bounds) * 1e12,
        ),
        (
            "roofline_tflops returns GFLOP/s: it should return TFLOP/s",
            lambda k: min(k.bounds) * 1e3,
        ),
        (
            "roofline_tflops takes the intensity upside down: it is FLOPs per byte",
            lambda k: min(k.bounds[0], k.nbytes / k.flops * k.gpu.peak_gbs / 1e3),
        ),
        (
            "roofline_tflops counts a GB as 2**30 bytes: GB/s are 1e9 bytes a second",
            lambda k: min(k.bounds[0], k.bounds[1] * 2**30 / 1e9),
        ),
        (
            "roofline_tflops takes the course's GPU, whichever GPU it is given",
            lambda k: min(k.at(COURSE_GPU)),
        ),
    ]
    check_numbers(
        [str(k) for k in kernels],
        seen,
        [min(k.bounds) for k in kernels],
        [(words, lambda i, f=f: f(kernels[i])) for words, f in mistakes],
    )
