"""Checkpoints the final norm and lm_head as well.

exercise: C5
caught by: C5.2
says: only the layers are to be recomputed
"""


# file: olmoe/model.py
class Olmoe:
    def forward(self, tokens, seqs, recompute=False):
        x = self.embed(tokens)
        rope = rope_tables(seqs.positions, self.cfg, x.dtype)
        for layer in self.layers:
            if recompute:
                x = checkpoint(layer, x, seqs, rope, use_reentrant=False)
            else:
                x = layer(x, seqs, rope)
        if recompute:
            return checkpoint(lambda x: self.lm_head(self.norm(x)), x, use_reentrant=False)
        return self.lm_head(self.norm(x))
