"""A lambda with the loop variable bound as a default.

exercise: C5
"""


# file: olmoe/model.py
class Olmoe:
    def forward(self, tokens, seqs, recompute=False):
        x = self.embed(tokens)
        rope = rope_tables(seqs.positions, self.cfg, x.dtype)
        for layer in self.layers:
            if recompute:
                x = checkpoint(lambda x, layer=layer: layer(x, seqs, rope), x, use_reentrant=False)
            else:
                x = layer(x, seqs, rope)
        return self.lm_head(self.norm(x))
