"""Leaves checkpoint at its old implementation.

exercise: C5
caught by: C5.4
says: the checkpoint is reentrant
"""


# file: olmoe/model.py
class Olmoe:
    def forward(self, tokens, seqs, recompute=False):
        x = self.embed(tokens)
        rope = rope_tables(seqs.positions, self.cfg, x.dtype)
        for layer in self.layers:
            if recompute:
                x = checkpoint(layer, x, seqs, rope, use_reentrant=True)
            else:
                x = layer(x, seqs, rope)
        return self.lm_head(self.norm(x))
