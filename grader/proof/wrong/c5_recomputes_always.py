"""Recomputes also when it is not asked to.

exercise: C5
caught by: C5.2
says: with recompute=False
"""


# file: olmoe/model.py
class Olmoe:
    def forward(self, tokens, seqs, recompute=False):
        x = self.embed(tokens)
        rope = rope_tables(seqs.positions, self.cfg, x.dtype)
        for layer in self.layers:
            x = checkpoint(layer, x, seqs, rope, use_reentrant=False)
        return self.lm_head(self.norm(x))
