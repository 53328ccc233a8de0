"""Runs the layer as always: the gradients are right, and nothing is saved.

exercise: C5
caught by: C5.2
says: nothing was recomputed
"""


# file: olmoe/model.py
class Olmoe:
    def forward(self, tokens, seqs, recompute=False):
        x = self.embed(tokens)
        rope = rope_tables(seqs.positions, self.cfg, x.dtype)
        for layer in self.layers:
            if recompute:
                x = layer(x, seqs, rope)
            else:
                x = layer(x, seqs, rope)
        return self.lm_head(self.norm(x))
