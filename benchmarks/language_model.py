"""Fine-tuning a small causal model on texts with corrupted answers, by several losses.

    python benchmarks/language_model.py > results/language_model/table.md

The texts are sums, ``12+07=19``, in characters. A model of two layers is first trained on right
sums, then fine-tuned on the answers of 2,000 sums of numbers below 50, of which 40% are wrong.
How much it knows before fine-tuning depends on the first training: 300 or 200 steps on such sums,
or 200 steps on sums of numbers below 30, so that most of the others are new to it.

Its last layer and the loss are ``imae.linear_curve_loss``, which never holds the logits. The step
size is chosen for each loss and seed on held-out texts with as many wrong answers, as in practice.
A second table compares one step of that head with plain ones, at a vocabulary of 32,000.
"""

import copy
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parent))

from machine import command_line, describe, extra_bytes, load, median_of_rounds

import imae
from imae.curves import CCE, IMAE, MAE, Curve, Scale

SYMBOLS = "0123456789+="
ANSWER = 6  # position of the answer in a text
LARGEST = 50
WRONG = 0.4
BATCH = 64
FIRST_RATE = 4e-3
STEPS, RATES = 200, (3e-4, 1e-3, 3e-3, 1e-2)
SEEDS = range(3)
LOSSES: dict[str, Curve] = {
    "CCE": CCE(),
    "DFT (MAE / 2)": Scale(MAE(), 0.5),
    "IMAE, T = 8": IMAE(T=8.0),
}
# Steps of the first training, and the limit of the numbers in its texts.
SETTINGS = {"mostly known": (300, LARGEST), "half known": (200, LARGEST), "mostly new": (200, 30)}
POSITIONS, WIDTH, WORDS = 1024, 128, 32_000

Texts = tuple[Tensor, Tensor]
Head = Callable[[Tensor, Tensor, Tensor], Tensor]


def sums(number: int, seed: int, *, below: int = LARGEST, wrong: float = 0.0) -> Texts:
    """Tokens, shape (N, 7), and the next token of each in an answer, -100 before it."""
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.randint(below, (number, 2), generator=generator).tolist()
    is_wrong = torch.rand(number, generator=generator) < wrong
    others = torch.randint(2 * LARGEST - 1, (number,), generator=generator).tolist()
    texts = []
    for row, (a, b) in enumerate(pairs):
        answer = others[row] if is_wrong[row] else a + b
        text = f"{a:02d}+{b:02d}={answer:02d}"
        texts.append([SYMBOLS.index(symbol) for symbol in text])
    tokens = torch.tensor(texts)
    target = tokens[:, 1:].clone()
    target[:, : ANSWER - 1] = -100
    return tokens[:, :-1], target


class Model(nn.Module):
    """Two causal layers; returns the features before the last layer."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(len(SYMBOLS), width)
        self.place = nn.Parameter(torch.zeros(ANSWER + 1, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, len(SYMBOLS), bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Features of each position, shape (N, 7, width)."""
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        features: Tensor = self.body(self.embed(tokens) + self.place, mask=mask, is_causal=True)
        return features


def fused_head(features: Tensor, matrix: Tensor, target: Tensor, *, curve: Curve) -> Tensor:
    return imae.linear_curve_loss(features, matrix, target, curve)


def plain_head(features: Tensor, matrix: Tensor, target: Tensor, *, curve: Curve) -> Tensor:
    logits = functional.linear(features, matrix).flatten(0, -2)
    return imae.curve_loss(logits, target.flatten(), curve)


def torch_head(features: Tensor, matrix: Tensor, target: Tensor) -> Tensor:
    logits = functional.linear(features, matrix).flatten(0, -2)
    return functional.cross_entropy(logits, target.flatten())


def trained(model: Model, texts: Texts, head: Head, *, steps: int, rate: float, seed: int) -> Model:
    """A copy of the model, trained."""
    model = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        rows = torch.randint(len(texts[0]), (BATCH,), generator=generator)
        optimizer.zero_grad()
        head(model(texts[0][rows]), model.head.weight, texts[1][rows]).backward()
        optimizer.step()
        schedule.step()
    return model


def first_model(setting: str, seed: int) -> Model:
    steps, below = SETTINGS[setting]
    torch.manual_seed(seed)
    texts = sums(4000, 10 * seed, below=below)
    head = partial(fused_head, curve=CCE())
    return trained(Model(), texts, head, steps=steps, rate=FIRST_RATE, seed=seed)


def right_answers(model: Model, texts: Texts) -> float:
    """Percentage of texts whose answer is the most likely one."""
    tokens, wanted = texts
    with torch.no_grad():
        found = model.head(model(tokens)).argmax(-1)
    return 100 * float(((found == wanted) | (wanted == -100)).all(1).double().mean())


def fine_tuned(first: Model, curve: Curve, seed: int) -> tuple[float, float]:
    """Percentage of right answers to new sums, and the step size that was chosen."""
    texts = sums(2000, 10 * seed + 1, wrong=WRONG)
    held_out = sums(1000, 10 * seed + 2, wrong=WRONG)
    head = partial(fused_head, curve=curve)
    models = {
        rate: trained(first, texts, head, steps=STEPS, rate=rate, seed=seed) for rate in RATES
    }
    chosen = max(RATES, key=lambda rate: right_answers(models[rate], held_out))
    return right_answers(models[chosen], new_sums(seed)), chosen


def new_sums(seed: int) -> Texts:
    return sums(2000, 10 * seed + 3)


def shown(percentages: list[float]) -> str:
    return f"{statistics.mean(percentages):.1f} ± {statistics.stdev(percentages):.1f}"


def compare_losses() -> None:
    print(
        f"Right answers to new sums, in percent, mean and standard deviation over {len(SEEDS)} "
        f"seeds, after {STEPS} steps on\ntexts of which {WRONG:.0%} have a wrong answer. The step "
        f"size of each loss and seed, in brackets, is the best of {len(RATES)}\nby held-out texts "
        "with as many wrong answers.\n"
    )
    print(f"| loss | {' | '.join(SETTINGS)} |\n|---{'|---' * len(SETTINGS)}|")
    firsts = {name: [first_model(name, seed) for seed in SEEDS] for name in SETTINGS}
    before = {
        name: [right_answers(model, new_sums(seed)) for seed, model in enumerate(models)]
        for name, models in firsts.items()
    }
    print(f"| before | {' | '.join(map(shown, before.values()))} |", flush=True)
    reached: dict[str, dict[str, list[float]]] = {name: {} for name in SETTINGS}
    for name, curve in LOSSES.items():
        cells = []
        for setting, models in firsts.items():
            found = [fine_tuned(model, curve, seed) for seed, model in enumerate(models)]
            reached[setting][name] = [each for each, _ in found]
            rates = ", ".join(f"{rate:g}" for _, rate in found)
            cells.append(f"{shown(reached[setting][name])} ({rates})")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    print("\nThe highest of the losses, seed by seed:\n")
    for setting, of_loss in reached.items():
        highest = [max(of_loss, key=lambda name: of_loss[name][seed]) for seed in SEEDS]
        print(f"- {setting}: {'; '.join(highest)}")


def compare_heads() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(POSITIONS, WIDTH, generator=generator).requires_grad_()
    matrix = (torch.randn(WORDS, WIDTH, generator=generator) / WIDTH**0.5).requires_grad_()
    target = torch.randint(WORDS, (POSITIONS,), generator=generator)
    curve = IMAE(T=8.0)

    def step(head: Head) -> None:
        features.grad = matrix.grad = None
        head(features, matrix, target).backward()

    steps = {
        "linear, F.cross_entropy": partial(step, torch_head),
        "linear, curve_loss": partial(step, partial(plain_head, curve=curve)),
        "linear_curve_loss": partial(step, partial(fused_head, curve=curve)),
    }
    times = median_of_rounds(steps, "linear, F.cross_entropy")
    print(
        f"\nOne step of a head, forward and backward: {POSITIONS} positions, {WIDTH} features, "
        f"{WORDS} words, float32; memory at its\npeak, the gradients included; median time of "
        f"turns. {describe()}, {load()}.\n"
    )
    print("| head | memory | time | by the first |\n|---|---|---|---|")
    memory = {}
    for name, run in reversed(steps.items()):
        features.grad = matrix.grad = None
        memory[name] = extra_bytes(run)
    for name, (seconds, ratio) in times.items():
        print(f"| {name} | {memory[name] / 2**20:.0f} MB | {seconds:.2f} s | {ratio:.2f} |")


if __name__ == "__main__":
    command_line(__doc__).parse_args()
    compare_losses()
    compare_heads()
