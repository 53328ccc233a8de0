"""The training step: one global batch, one update.

The *global batch* of a step is the set of sequences that one optimizer update is computed from.
A *micro batch* is the set of sequences that goes through the model in one forward and backward
pass (`olmoe.data.MicroBatch`). `train_step` runs its global batch as a single micro batch,
`accumulated_step` as several, and `stage_times` says where the time of a step goes.
"""

import statistics

import torch
import torch.nn.functional as F

from olmoe.data import IGNORE
from olmoe.prof import in_backward, nvtx_range


def lm_loss(logits, targets, count):
    """The cross-entropies of all trainable tokens, added up and divided by `count`.

    logits [T, V] in any dtype, targets [T] int64, `IGNORE` where a token has no target.
    `count` is a Python int. It is the caller's to choose, because the mean that a step needs is
    over the trainable tokens of its global batch, which may be more than there are in `targets`.
    Returns a 0-dim float32 tensor.
    """
    total = F.cross_entropy(logits.float(), targets, ignore_index=IGNORE, reduction="sum")
    return total / count


def make_optimizer(model, lr=1e-4):
    """AdamW over every parameter, as one fused kernel where the device has one.

    The two moments are kept in the parameters' dtype. (Loshchilov & Hutter, arXiv:1711.05101.)
    """
    params = list(model.parameters())
    fused = all(p.device.type in ("cuda", "cpu") for p in params)
    return torch.optim.AdamW(params, lr=lr, betas=(0.9, 0.95), weight_decay=0.1, fused=fused)


def train_step(model, optimizer, micro_batch, recompute=False):
    """One optimizer step on a global batch that is a single micro batch.

    Gradients are cleared (set to None) before the step and again after it: between two steps
    their memory is free. Never waits for the GPU.
    Returns the mean loss of the step's trainable tokens, a detached 0-dim float32 tensor.
    """
    optimizer.zero_grad(set_to_none=True)
    with nvtx_range("forward"):
        # No name for the logits: [T, V] would stay allocated throughout the backward pass.
        loss = lm_loss(
            model(micro_batch.tokens, micro_batch.seqs, recompute=recompute),
            micro_batch.targets,
            micro_batch.n_targets,
        )
    with nvtx_range("backward"):
        loss.backward()
    with nvtx_range("optimizer"):
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.detach()


def accumulated_step(model, optimizer, micro_batches, recompute=False):
    """Coding Exercise 6: one optimizer step on a global batch given as a list of micro batches.

    The update is the one that `train_step` makes on the same sequences as a single micro batch
    (up to rounding), however they are split: the micro batches may have different numbers of
    sequences, of tokens and of trainable tokens, and some tokens have no target (`IGNORE`).

    model, optimizer   as for `train_step`
    micro_batches      list of at least one `olmoe.data.MicroBatch`, on the model's device; at
                       least one of their tokens is trainable
    recompute          passed on to the model

    - Gradients are cleared (set to None) before the step, whatever was in `.grad`, and again
      after it, as in `train_step`.
    - Each micro batch, in the order of the list, has one forward pass and one backward pass of
      its own. The activations of one micro batch are free before the next one's forward pass
      begins, so that the memory needed depends on the largest micro batch, not on their number.
    - `optimizer.step()` is called exactly once, after the last backward pass.
    - The NVTX ranges are those of `train_step`: `forward` and `backward` once per micro batch,
      `optimizer` once.
    - Nothing waits for the GPU: no `.item()`, `.cpu()` or `synchronize()`.

    Returns the mean loss of all trainable tokens of the global batch, before the update: a
    detached 0-dim float32 tensor, which `train_step` would have returned too (up to rounding).
    """
    raise NotImplementedError("Coding 6: accumulated_step")


def stage_times(model, optimizer, micro_batch, recompute=False, warmup=2, steps=5):
    """Coding Exercise 7: the GPU time of every stage of a training step, and of the optimizer.

    The stages are, in this order, `"embed"` (`model.embed`), `"layers.0"`, `"layers.1"`, ...
    (each module of `model.layers`), and `"head"`: everything between the output of the last
    layer and the loss, that is the final norm, `lm_head` and `lm_loss`.

    Runs `warmup` steps that are not timed and then `steps` (at least 1) that are. Each of them
    does what `train_step(model, optimizer, micro_batch, recompute)` does, update included.

    Returns `(stages, optimizer_ms)`.
    stages         dict: name of a stage -> {"forward": ms, "backward": ms, "recompute": ms},
                   the names in the order above
    optimizer_ms   float, the time of `optimizer.step()`

    Every one of these times is a float, in milliseconds of GPU time between two CUDA events, and
    the median over the timed steps.

    - `forward` is the time from the end of the stage before (for `"embed"`: from the beginning of
      the forward pass) to the end of this one in the forward pass.
    - `recompute` is the time of the forward that runs a second time during the backward pass. It
      is 0.0 for a stage that is not recomputed: always for `"embed"` and `"head"`, and for every
      layer when `recompute` is false.
    - `backward` is the stage's share of the backward pass, from the moment when the gradient of
      its output is known to the moment when the gradient of its input is (for `"embed"`: to the
      end of the backward pass), *without* its recompute time.
    - `optimizer_ms` begins where the backward pass ends; it is in no stage.
    - Nothing waits for the GPU within a step: events are recorded, and read after the last step.
      (A `synchronize()` between two whole steps is allowed, if you want one.)
    - Before it returns, every hook that it put on a module is removed and gradients are cleared.
      If a step raises, in a layer's forward for example, the hooks are removed all the same, and
      the exception goes on to the caller.

    Adds no hooks to parameters, and leaves the hooks of others where they are.
    """
    raise NotImplementedError("Coding 7: stage_times")
