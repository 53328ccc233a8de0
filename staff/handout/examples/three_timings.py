import time

import torch

a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
for _ in range(3):  # warm-up: the first calls load libraries and allocate memory
    torch.matmul(a, b)
torch.cuda.synchronize()

# 1. The host's clock around the call.
begin = time.perf_counter()
torch.matmul(a, b)
seconds = time.perf_counter() - begin
print(f"1  host's clock around the call    {seconds * 1e3:8.3f} ms")
torch.cuda.synchronize()

# 2. The host's clock, stopped once the GPU has nothing left to do.
begin = time.perf_counter()
torch.matmul(a, b)
torch.cuda.synchronize()
seconds = time.perf_counter() - begin
print(f"2  host's clock, waiting           {seconds * 1e3:8.3f} ms")

# 3. The GPU's clock.
before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
before.record()
torch.matmul(a, b)
after.record()
after.synchronize()
print(f"3  CUDA events                     {before.elapsed_time(after):8.3f} ms")
