"""Calls checkpoint and drops what it returns.

exercise: C5
caught by: C5.1
says: the logits with recompute=True are not those without
"""


# file: olmoe/model.py
class Olmoe:
    def forward(self, tokens, seqs, recompute=False):
        x = self.embed(tokens)
        rope = rope_tables(seqs.positions, self.cfg, x.dtype)
        for layer in self.layers:
            if recompute:
                checkpoint(layer, x, seqs, rope, use_reentrant=False)
            else:
                x = layer(x, seqs, rope)
        return self.lm_head(self.norm(x))
