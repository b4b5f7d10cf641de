"""Fine-tuning a small causal model on corrupted answers, by several losses and two heads.

    python benchmarks/language_model.py
    python benchmarks/language_model.py memory plain    # and: memory fused

The texts are sums, ``12+7=19``, in characters. Of the training texts 40% have a wrong answer. A
model of two layers is trained from random weights on the answers only, with the plain head (logits,
then cross entropy or a curve) or with ``imae.linear_curve_loss``, which is the last layer and the
loss in one and never holds the logits. The table gives the share of right answers on new sums, the
time of a step and the memory that a step of the head and the loss adds, measured with a vocabulary
of 32,000.
"""

import resource
import sys
import time

import torch
from torch import Tensor, nn

import imae
from imae.curves import CCE, IMAE, MAE, Curve, Scale

SYMBOLS = "0123456789+= "
LENGTH = 9
STEPS = 1500
LOSSES: dict[str, Curve] = {
    "CCE": CCE(),
    "DFT (MAE / 2)": Scale(MAE(), 0.5),
    "IMAE, T = 4": IMAE(T=4.0),
}


def sums(number: int, seed: int, wrong: float) -> tuple[Tensor, Tensor]:
    """Tokens, shape (N, LENGTH), and the target of each position; -100 outside of the answer."""
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.randint(50, (number, 2), generator=generator).tolist()
    is_wrong = torch.rand(number, generator=generator) < wrong
    others = torch.randint(99, (number,), generator=generator).tolist()
    tokens = torch.empty(number, LENGTH, dtype=torch.int64)
    for row, (a, b) in enumerate(pairs):
        answer = others[row] if is_wrong[row] else a + b
        text = f"{a:02d}+{b:02d}={answer:02d}".ljust(LENGTH)
        tokens[row] = torch.tensor([SYMBOLS.index(symbol) for symbol in text])
    target = torch.full_like(tokens, -100)
    target[:, 5:7] = tokens[:, 6:8]  # the two digits after the equals sign, one position earlier
    return tokens, target


class Model(nn.Module):
    """Two causal layers; gives the features before the last layer."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(len(SYMBOLS), width)
        self.place = nn.Parameter(torch.zeros(LENGTH, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, len(SYMBOLS), bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Features of each position, shape (N, LENGTH, width)."""
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        features: Tensor = self.body(self.embed(tokens) + self.place, mask=mask, is_causal=True)
        return features


def loss_of(model: Model, tokens: Tensor, target: Tensor, curve: Curve, *, fused: bool) -> Tensor:
    features = model(tokens)
    if fused:
        return imae.linear_curve_loss(features, model.head.weight, target, curve)
    return imae.curve_loss(model.head(features).flatten(0, 1), target.flatten(), curve)


def right_answers(curve: Curve, *, fused: bool, seed: int = 0) -> tuple[float, float]:
    """Share of right answers on new sums, and the seconds of a step."""
    torch.manual_seed(seed)
    model = Model()
    tokens, target = sums(4000, seed=1, wrong=0.4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=STEPS)
    generator = torch.Generator().manual_seed(seed)
    start = time.perf_counter()
    for _ in range(STEPS):
        rows = torch.randint(len(tokens), (128,), generator=generator)
        loss = loss_of(model, tokens[rows], target[rows], curve, fused=fused)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    seconds = (time.perf_counter() - start) / STEPS
    new, wanted = sums(2000, seed=2, wrong=0.0)
    with torch.no_grad():
        found = model.head(model.eval()(new)).argmax(-1)
    counted = wanted != -100
    is_right = ((found == wanted) | ~counted).all(1)
    return float(is_right.double().mean()), seconds


def head_memory(*, fused: bool) -> None:
    """Prints the memory that one step of a head with 32,000 words adds; needs a new process."""
    features = torch.randn(4096, 256, requires_grad=True)
    weight = torch.randn(32_000, 256, requires_grad=True)
    target = torch.arange(4096)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    if fused:
        imae.linear_curve_loss(features, weight, target, IMAE(T=4.0)).backward()
    else:
        imae.curve_loss(features @ weight.T, target, IMAE(T=4.0)).backward()
    seconds = time.perf_counter() - start
    added = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(
        f"| {'linear_curve_loss' if fused else 'plain head'} | {added:.0f} MB | {seconds:.1f} s |"
    )


def main() -> None:
    if sys.argv[1:2] == ["memory"]:
        head_memory(fused=sys.argv[2] == "fused")
        return
    print("| loss | right answers | linear_curve_loss | a step, plain head |\n|---|---|---|---|")
    for name, curve in LOSSES.items():
        plain, seconds = right_answers(curve, fused=False)
        fused, _ = right_answers(curve, fused=True)
        print(f"| {name} | {plain:.1%} | {fused:.1%} | {1000 * seconds:.1f} ms |", flush=True)


if __name__ == "__main__":
    main()
