"""The callback in the real Trainer: accumulation, two processes, and what is refused."""

import importlib.util
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

import imae
from imae.audit import audit
from imae.errors import ArgumentError, DataError
from imae.records import RunFolder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("pytorch_lightning") is None, reason="needs pytorch-lightning"
    ),
    pytest.mark.filterwarnings("default"),  # of a library that gives advice as warnings
]
PROGRAM = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import imae
import pytorch_lightning
from imae.integrations.lightning import AuditCallback


class Rows(Dataset):
    def __len__(self):
        return 121  # not a multiple of the processes

    def __getitem__(self, row):
        label = row % 3
        given = (label + 1) % 3 if row % 5 == 0 else label
        return nn.functional.one_hot(torch.tensor(label), 3).float(), given, row


class Module(pytorch_lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = nn.Linear(3, 3)
        self.loss = imae.IMAELoss(T=4.0)

    def training_step(self, batch, _):
        inputs, target, row = batch
        logits = self.network(inputs)
        return {"loss": self.loss(logits, target), "logits": logits, "target": target, "row": row}

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.5)


def fit(out, **options):
    torch.manual_seed(0)
    trainer = pytorch_lightning.Trainer(
        max_epochs=5, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[AuditCallback(out)],
        **options,
    )
    trainer.fit(Module(), DataLoader(Rows(), batch_size=8, shuffle=True))
"""


def run(tmp_path, options):
    program = (
        f"{PROGRAM}\nif __name__ == '__main__':\n    fit({str(tmp_path / 'run')!r}, {options})\n"
    )
    path = tmp_path / "program.py"
    path.write_text(program)
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return RunFolder(tmp_path / "run")


@pytest.mark.parametrize(
    "options",
    ["accumulate_grad_batches=4", "devices=2, strategy='ddp'"],
    ids=["accumulation", "two processes"],
)
def test_every_row_of_every_epoch_is_recorded(options, tmp_path):
    folder = run(tmp_path, options)
    rows = np.arange(121)
    given = np.where(rows % 5 == 0, (rows + 1) % 3, rows % 3)
    assert folder.labels().given.tolist() == given.tolist()
    assert folder.epochs() == [1, 2, 3, 4, 5]
    for epoch in folder.epochs():
        assert (folder.dynamics(epoch).predicted >= 0).all()
    assert folder.result()["status"] == "finished"
    found = audit(folder)
    assert (rows % 5 == 0)[found.order()[:25]].all()


class Rows(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, row):
        return torch.ones(3), row % 2, row


def trainer(callback):
    import pytorch_lightning

    quiet = {"enable_progress_bar": False, "enable_model_summary": False}
    return pytorch_lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
        callbacks=[callback], **quiet,
    )  # fmt: skip


def module(returned):
    import pytorch_lightning

    class Module(pytorch_lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = nn.Linear(3, 2)

        def training_step(self, batch, _):
            inputs, target, row = batch
            logits = self.network(inputs)
            every = {"logits": logits, "target": target, "row": row}
            if not returned:
                return None if row[0] == 2 else {**every, "loss": logits.sum()}
            loss = imae.IMAELoss()(logits, target)
            return {"loss": loss, **{name: every[name] for name in returned}}

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return Module()


def test_a_batch_that_a_step_skips_is_not_recorded(tmp_path):
    from imae.integrations.lightning import AuditCallback

    callback = AuditCallback(tmp_path / "run")
    trainer(callback).fit(module([]), DataLoader(Rows(), batch_size=2))
    assert np.flatnonzero(RunFolder(tmp_path / "run").dynamics(1).predicted < 0).tolist() == [2, 3]


def test_what_is_missing_is_named(tmp_path):
    from imae.integrations.lightning import AuditCallback

    with pytest.raises(DataError, match="loss, logits, target, row"):
        trainer(AuditCallback(tmp_path / "a")).fit(module(["logits"]), DataLoader(Rows()))

    class Stream(IterableDataset):
        def __iter__(self):
            yield from (Rows()[row] for row in range(8))

    with pytest.raises(ArgumentError, match="with a length"):
        trainer(AuditCallback(tmp_path / "b")).fit(
            module(["logits", "target", "row"]), DataLoader(Stream())
        )
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "other").write_text("x")
    with pytest.raises(ArgumentError):
        trainer(AuditCallback(tmp_path / "c")).fit(
            module(["logits", "target", "row"]), DataLoader(Rows())
        )
