"""Does not recompute the last layer, whose backward pass comes first anyway.

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
            if recompute and i < len(self.layers) - 1:
                x = checkpoint(layer, x, seqs, rope, use_reentrant=False)
            else:
                x = layer(x, seqs, rope)
        return self.lm_head(self.norm(x))
