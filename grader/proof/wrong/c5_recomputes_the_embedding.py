"""Checkpoints the embedding as well.

exercise: C5
caught by: C5.2
says: only the layers are to be recomputed
"""


# file: olmoe/model.py
class Olmoe:
    def forward(self, tokens, seqs, recompute=False):
        x = self.embed(tokens)
        rope = rope_tables(seqs.positions, self.cfg, x.dtype)
        if recompute:
            x = checkpoint(self.embed, tokens, use_reentrant=False)
        for layer in self.layers:
            if recompute:
                x = checkpoint(layer, x, seqs, rope, use_reentrant=False)
            else:
                x = layer(x, seqs, rope)
        return self.lm_head(self.norm(x))
