"""Recomputes every other layer, to save time.

exercise: C5
caught by: C5.2
says: did not run again in the backward pass
"""


# file: olmoe/model.py
class Olmoe:
    def forward(self, tokens, seqs, recompute=False):
        x = self.embed(tokens)
        rope = rope_tables(seqs.positions, self.cfg, x.dtype)
        for i, layer in enumerate(self.layers):
            if recompute and i % 2 == 0:
                x = checkpoint(layer, x, seqs, rope, use_reentrant=False)
            else:
                x = layer(x, seqs, rope)
        return self.lm_head(self.norm(x))
