"""Checkpoints selectively: what the matrix multiplies return is kept, and not computed again.

exercise: C5
caught by: C5.3
says: although every layer ran again
"""

# file: olmoe/model.py
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts


class Olmoe:
    def forward(self, tokens, seqs, recompute=False):
        def keep(ctx, op, *args, **kwargs):
            is_matmul = any(name in str(op) for name in ("mm", "matmul", "linear"))
            return CheckpointPolicy.MUST_SAVE if is_matmul else CheckpointPolicy.PREFER_RECOMPUTE

        def contexts():
            return create_selective_checkpoint_contexts(keep)

        x = self.embed(tokens)
        rope = rope_tables(seqs.positions, self.cfg, x.dtype)
        for layer in self.layers:
            if recompute:
                x = checkpoint(layer, x, seqs, rope, use_reentrant=False, context_fn=contexts)
            else:
                x = layer(x, seqs, rope)
        return self.lm_head(self.norm(x))
