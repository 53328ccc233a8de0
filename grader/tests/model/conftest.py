import torch

# The tensors here are small, and tests run side by side: threads would only wait for one another.
torch.set_num_threads(1)
