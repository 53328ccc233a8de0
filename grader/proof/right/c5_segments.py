"""A loop over segments, as checkpoint_sequential has it, each of one layer.

exercise: C5
"""


# file: olmoe/model.py
def run_segment(layers, start, end, seqs, rope):
    def run(x):
        for layer in layers[start:end]:
            x = layer(x, seqs, rope)
        return x

    return run


class Olmoe:
    def forward(self, tokens, seqs, recompute=False):
        x = self.embed(tokens)
        rope = rope_tables(seqs.positions, self.cfg, x.dtype)
        for i in range(len(self.layers)):
            segment = run_segment(self.layers, i, i + 1, seqs, rope)
            x = checkpoint(segment, x, use_reentrant=False) if recompute else segment(x)
        return self.lm_head(self.norm(x))
