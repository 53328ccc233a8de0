"""Counts how many tokens of a real text the router of each layer sends to each expert.

Writes routing.csv.  The text is Lincoln's address at Gettysburg (1863), or a file of your own.
With --random-weights there is no tokenizer, and the tokens are random as well.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # the folder that holds olmoe/ and a1/

import torch
import torch.nn.functional as F

from a1 import session
from a1.text import Text
from olmoe.data import Seqs
from olmoe.load import CheckpointError, load
from olmoe.model import Olmoe

PASSAGE = Path(__file__).with_name("passage.txt")
RANDOM_TOKENS = 512


@torch.no_grad()
def tokens_per_expert(model: Olmoe, ids: list[int]) -> list[list[int]]:
    """For each layer, how many of the tokens went to each expert: [n_layers][n_experts]."""
    counts = []

    def count(moe, inputs):
        # The router's softmax does not change which logits are largest.
        chosen = F.linear(inputs[0], moe.router).topk(model.cfg.experts_per_token).indices  # [T, K]
        counts.append(torch.bincount(chosen.flatten(), minlength=model.cfg.n_experts))

    hooks = [layer.moe.register_forward_pre_hook(count) for layer in model.layers]
    try:
        tokens = torch.tensor(ids, device=session.DEVICE)
        model(tokens, Seqs.from_lengths([len(ids)], session.DEVICE))
    finally:
        for hook in hooks:
            hook.remove()
    return [layer.tolist() for layer in counts]


def report(counts: list[list[int]]) -> str:
    """One line per layer: the busiest and the idlest expert, against the mean."""
    lines = [f"{'layer':>5}  {'busiest expert':<30}  {'idlest expert':<30}"]
    for layer, per_expert in enumerate(counts):
        mean = sum(per_expert) / len(per_expert)

        def described(tokens: int, per_expert=per_expert, mean=mean) -> str:
            return f"{per_expert.index(tokens):2d}: {tokens} tokens, {tokens / mean:.1f} x mean"

        busiest, idlest = described(max(per_expert)), described(min(per_expert))
        lines.append(f"{layer:5d}  {busiest:<30}  {idlest:<30}".rstrip())
    worst = max(max(c) * len(c) / sum(c) for c in counts)
    lines.append(f"the busiest expert of any layer has {worst:.1f} times the mean")
    return "\n".join(lines)


def model_and_ids(args) -> tuple[Olmoe, list[int]]:
    if args.random_weights:
        model = session.random_model()
        generator = torch.Generator().manual_seed(0)
        ids = torch.randint(model.cfg.vocab_size, (RANDOM_TOKENS,), generator=generator)
        return model, ids.tolist()
    folder = session.checkpoint(args)
    try:
        ids = Text(folder).ids(args.text.read_text(encoding="utf-8"))
        return load(folder, device=session.DEVICE), ids
    except FileNotFoundError as missing:
        raise session.Stop(f"no file {missing.filename}") from None
    except (CheckpointError, UnicodeDecodeError) as wrong:
        raise session.Stop(str(wrong)) from None


def main() -> None:
    parser = session.arguments(__doc__)
    parser.add_argument("--text", type=Path, default=PASSAGE, help="a file of text")
    parser.add_argument("--weights", type=Path, help="checkpoint (default: $OLMOE_WEIGHTS)")
    parser.add_argument("--random-weights", action="store_true", help="no checkpoint")
    args = parser.parse_args()
    session.need_gpu()
    model, ids = model_and_ids(args)
    what = "random tokens, random weights" if args.random_weights else f"tokens of {args.text.name}"
    session.say(f"{len(ids)} {what}, {model.cfg.experts_per_token} experts each")
    with session.results("routing", args) as out:
        counts = tokens_per_expert(model, ids)
        for layer, per_expert in enumerate(counts):
            for expert, tokens in enumerate(per_expert):
                out.add(layer=layer, expert=expert, tokens=tokens)
        session.say(report(counts))


if __name__ == "__main__":
    session.run(main)
