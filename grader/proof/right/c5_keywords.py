"""Arguments by keyword, and the settings that are not needed switched off.

exercise: C5
"""


# file: olmoe/model.py
class Olmoe:
    def forward(self, tokens, seqs, recompute=False):
        x = self.embed(tokens)
        rope = rope_tables(seqs.positions, self.cfg, x.dtype)
        for layer in self.layers:
            if recompute:
                x = checkpoint(
                    layer, x, seqs=seqs, rope=rope, use_reentrant=False, preserve_rng_state=False
                )
            else:
                x = layer(x, seqs, rope)
        return self.lm_head(self.norm(x))
