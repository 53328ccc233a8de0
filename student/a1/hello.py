"""Loads the pretrained model and lets it continue a prompt."""

import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # the folder that holds olmoe/ and a1/

import torch

from a1 import session
from a1.text import Text
from olmoe.data import Seqs
from olmoe.load import CheckpointError, load
from olmoe.model import Olmoe


@torch.no_grad()
def continued(model: Olmoe, ids: list[int], new_tokens: int, end_ids: set[int]) -> list[int]:
    """`ids` and up to `new_tokens` more, the likeliest one at each place.

    Every pass runs over the whole text again: nothing is cached, which is enough for a greeting.
    """
    ids = list(ids)
    for _ in range(new_tokens):
        tokens = torch.tensor(ids, device=session.DEVICE)
        logits = model(tokens, Seqs.from_lengths([len(ids)], session.DEVICE))  # [T, V]
        ids.append(int(logits[-1].argmax()))
        if ids[-1] in end_ids:
            break
    return ids


def main() -> None:
    parser = session.arguments(__doc__, results=False)
    parser.add_argument("prompt", nargs="?", default="The capital of France is")
    parser.add_argument("--tokens", type=session.positive, default=20, help="to add, at most")
    parser.add_argument("--weights", type=Path, help="checkpoint (default: $OLMOE_WEIGHTS)")
    args = parser.parse_args()
    session.need_gpu()
    folder = session.checkpoint(args)
    text = Text(folder)
    ids = text.ids(args.prompt)
    if not ids:
        parser.error("the prompt is empty")
    begin = time.perf_counter()
    try:
        model = load(folder, device=session.DEVICE)
    except CheckpointError as wrong:
        raise session.Stop(str(wrong)) from None
    torch.cuda.synchronize()
    n_params = sum(p.numel() for p in model.parameters())
    print(
        f"loaded {n_params / 1e9:.2f}B parameters in {time.perf_counter() - begin:.0f} s; "
        f"{torch.cuda.memory_allocated() / 2**30:.1f} GiB on the GPU"
    )
    print(text.text(continued(model, ids, args.tokens, text.end_ids)))


if __name__ == "__main__":
    session.run(main)
