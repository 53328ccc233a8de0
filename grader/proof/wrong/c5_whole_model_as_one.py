"""Puts the whole forward pass into a single checkpoint.

exercise: C5
caught by: C5.2
says: inside a single checkpoint
"""


# file: olmoe/model.py
class Olmoe:
    def forward(self, tokens, seqs, recompute=False):
        x = self.embed(tokens)
        rope = rope_tables(seqs.positions, self.cfg, x.dtype)

        def whole(tokens):
            x = self.embed(tokens)
            for layer in self.layers:
                x = layer(x, seqs, rope)
            return self.lm_head(self.norm(x))

        return checkpoint(whole, tokens, use_reentrant=False) if recompute else whole(tokens)
