"""A lambda that looks the layer up in the backward pass, when the loop is over.

exercise: C5
caught by: C5.1
says: bind the variable
"""


# file: olmoe/model.py
class Olmoe:
    def forward(self, tokens, seqs, recompute=False):
        x = self.embed(tokens)
        rope = rope_tables(seqs.positions, self.cfg, x.dtype)
        for layer in self.layers:
            if recompute:
                x = checkpoint(lambda x: layer(x, seqs, rope), x, use_reentrant=False)
            else:
                x = layer(x, seqs, rope)
        return self.lm_head(self.norm(x))
