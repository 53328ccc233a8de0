"""Making part of a model slow by a known amount: the probes' "slow layer", on either tier."""

from contextlib import contextmanager

import torch


class _Delay(torch.autograd.Function):
    """The identity, which enqueues work of a given duration going forward and going backward.

    A copy rather than a view: autograd forbids in-place operations on a custom function's view.
    """

    @staticmethod
    def forward(ctx, x, work, forward_ms, backward_ms):
        ctx.work, ctx.backward_ms = work, backward_ms
        if forward_ms:
            work(forward_ms)
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        if ctx.backward_ms:
            ctx.work(ctx.backward_ms)
        return grad, None, None, None


class Delays:
    """`delay` and `slow`, in terms of the `work` of the class that inherits them."""

    def delay(self, x: torch.Tensor, forward_ms: float = 0.0, backward_ms: float = 0.0):
        """The values of `x`; enqueues work now, and again when the backward pass comes by."""
        return _Delay.apply(x, self.work, forward_ms, backward_ms)

    @contextmanager
    def slow(self, module: torch.nn.Module, forward_ms: float = 0.0, backward_ms: float = 0.0):
        """While the block runs, `module.forward` takes that much longer, inside the module's hooks.

        The delay sits before the module's first operation, because a recomputed forward is ended
        before its last. If no argument needs a gradient (token ids), the backward part is put
        behind the module's output instead.
        """
        forward = module.forward
        was_set = "forward" in vars(module)

        def slow_forward(*args, **kwargs):
            args = list(args)
            for i, arg in enumerate(args):
                if isinstance(arg, torch.Tensor) and arg.requires_grad:
                    args[i] = self.delay(arg, forward_ms, backward_ms)
                    return forward(*args, **kwargs)
            self.work(forward_ms)
            output = forward(*args, **kwargs)
            if isinstance(output, torch.Tensor) and output.requires_grad:
                output = self.delay(output, 0.0, backward_ms)
            return output

        module.forward = slow_forward
        try:
            yield module
        finally:
            if was_set:
                module.forward = forward
            else:
                del module.forward
