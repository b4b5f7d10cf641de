"""The loss and the callback in the real Trainer, on tiny models with random weights."""

import importlib.util
import pickle

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset

from imae.audit import audit
from imae.curves import CCE, GCE, IMAE
from imae.errors import ArgumentError, DataError
from imae.losses import curve_loss
from imae.records import RunFolder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("transformers") is None, reason="needs transformers"
    ),
    pytest.mark.filterwarnings("default"),  # of a library that warns about others
]


def texts(number=64, classes=3, length=6):
    """Tokens of which the first says the class; a quarter of the labels are wrong."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(number) % classes
    tokens = torch.randint(classes, 20, (number, length), generator=generator)
    tokens[:, 0] = labels
    given = labels.clone()
    given[::4] = (given[::4] + 1) % classes
    return tokens, labels, given


class Rows(Dataset):
    def __init__(self, tokens, given, **keys):
        self.tokens, self.given, self.keys = tokens, given, keys

    def __len__(self):
        return len(self.given)

    def __getitem__(self, row):
        example = {"input_ids": self.tokens[row], "labels": int(self.given[row])}
        return {**example, **({"row": row} if self.keys.get("with_row", True) else {})}


def classifier(seed=0):
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(seed)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    quiet = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = BertConfig(vocab_size=20, intermediate_size=16, num_labels=3, **sizes, **quiet)
    return BertForSequenceClassification(config)


def causal(seed=0):
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(seed)
    quiet = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    config = GPT2Config(vocab_size=20, n_positions=8, n_embd=16, n_layer=1, n_head=2, **quiet)
    return GPT2LMHeadModel(config)


def arguments(folder, **options):
    from transformers import TrainingArguments

    common = {"report_to": [], "use_cpu": True, "save_strategy": "no", "disable_tqdm": True}
    plain = {"learning_rate": 0.05, "lr_scheduler_type": "constant", "weight_decay": 0.0}
    return TrainingArguments(str(folder), **{**common, **plain, **options})


def trained(folder, model, dataset, loss, **options):
    from transformers import Trainer

    kwargs = {} if loss is None else {"compute_loss_func": loss}
    callbacks = options.pop("callbacks", None)
    args = arguments(folder, **options)
    trainer = Trainer(model, args, train_dataset=dataset, callbacks=callbacks, **kwargs)
    trainer.train()
    return trainer


def weights(model):
    return torch.cat([each.detach().flatten() for each in model.parameters()])


def test_the_loss_is_a_sum_divided_by_the_items():
    from imae.integrations.transformers import loss_function

    logits, labels = torch.randn(4, 3), torch.tensor([0, 1, -100, 2])
    loss = loss_function("imae", T=8.0)
    total = curve_loss(logits, labels, IMAE(T=8.0), reduction="sum")
    torch.testing.assert_close(loss({"logits": logits}, labels, 10), total / 10)
    torch.testing.assert_close(loss({"logits": logits}, labels), total / 3)
    torch.testing.assert_close(
        loss_function(GCE(q=0.5))({"logits": logits}, labels, torch.tensor(3)),
        curve_loss(logits, labels, GCE(q=0.5)),
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_losses_of_half_precision_are_added_in_float32(dtype):
    from imae.integrations.transformers import loss_function

    generator = torch.Generator().manual_seed(1)
    logits = (8 * torch.randn(8, 2000, 5, generator=generator)).to(dtype).requires_grad_()
    labels = torch.randint(5, (8, 2000), generator=generator)
    loss = loss_function("cce")({"logits": logits}, labels, 16_000)
    exact = cross_entropy(logits.detach().double().flatten(0, 1), labels.flatten())
    assert 16_000 * float(exact) > torch.finfo(torch.float16).max
    assert float(loss) == pytest.approx(float(exact), rel=5e-4)
    loss.backward()
    assert logits.grad.isfinite().all()


def test_wrong_curves_are_refused():
    from imae.integrations.transformers import loss_function

    with pytest.raises(ArgumentError, match="nonsense"):
        loss_function("nonsense")
    with pytest.raises(ArgumentError, match="parameters already"):
        loss_function(CCE(), T=8.0)


def test_causal_models_are_shifted_and_equal_their_own_loss():
    from imae.integrations.transformers import loss_function

    tokens, _, _ = texts()
    labels = tokens.clone()
    labels[:, :2] = -100
    model = causal()
    outputs = model(input_ids=tokens, labels=labels)
    own = outputs.loss
    torch.testing.assert_close(loss_function("cce")(outputs, labels), own, rtol=1e-5, atol=1e-6)
    plain = cross_entropy(outputs.logits.flatten(0, 1), labels.flatten())
    torch.testing.assert_close(loss_function("cce", shift=False)(outputs, labels), plain)


def test_training_with_cross_entropy_is_the_models_own(tmp_path):
    from imae.integrations.transformers import loss_function

    tokens, _, given = texts()
    dataset = Rows(tokens, given, with_row=False)
    options = {"max_steps": 6, "per_device_train_batch_size": 16, "optim": "sgd"}
    own, ours = classifier(), classifier()
    trained(tmp_path, own, dataset, None, **options)
    trained(tmp_path, ours, dataset, loss_function("cce"), **options)
    torch.testing.assert_close(weights(ours), weights(own), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("make", [classifier, causal])
def test_accumulation_gives_the_same_gradients(make, tmp_path):
    from imae.integrations.transformers import loss_function

    tokens, _, given = texts()

    class Tokens(Rows):
        def __getitem__(self, row):
            labels = self.tokens[row].clone()
            labels[: row % 4] = -100  # batches with different numbers of tokens
            return {"input_ids": self.tokens[row], "labels": labels}

    kind = Rows if make is classifier else Tokens
    dataset = kind(tokens, given, with_row=False)
    loss = loss_function("imae", T=4.0)
    options = {"max_steps": 3, "optim": "sgd", "max_grad_norm": 0.0}
    whole, parts = make(), make()
    trained(tmp_path, whole, dataset, loss, per_device_train_batch_size=16, **options)
    accumulated = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4}
    trained(tmp_path, parts, dataset, loss, **accumulated, **options)
    before = weights(make())
    assert (weights(whole) - before).abs().max() > 1e-3, "it has moved"
    torch.testing.assert_close(weights(parts), weights(whole), rtol=1e-4, atol=1e-5)


def test_the_callback_writes_a_run_that_is_audited(tmp_path):
    from imae.cli.app import main
    from imae.integrations.transformers import AuditCallback, loss_function

    tokens, labels, given = texts(96)
    callback = AuditCallback(tmp_path / "run", given, class_names=["a", "b", "c"])
    options = {"num_train_epochs": 12, "per_device_train_batch_size": 8}
    trained(
        tmp_path / "out",
        classifier(),
        Rows(tokens, given),
        loss_function("imae", T=8.0),
        callbacks=[callback],
        remove_unused_columns=False,
        gradient_accumulation_steps=2,
        learning_rate=0.01,
        **options,
    )
    folder = RunFolder(tmp_path / "run")
    assert folder.epochs() == list(range(1, 13))
    assert (folder.dynamics(12).predicted >= 0).all(), "every row in every epoch"
    found = audit(folder)
    is_wrong = (given != labels).numpy()
    assert is_wrong[found.order()[: is_wrong.sum()]].mean() > 0.8
    assert found.class_names == ("a", "b", "c")
    assert main(["audit", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "audit" / "review.html").exists()


class Strict(nn.Module):
    """A model that takes no other arguments, unlike many of the package."""

    def __init__(self):
        super().__init__()
        self.embedding, self.last = nn.Embedding(20, 8), nn.Linear(8, 3)

    def forward(self, input_ids, labels=None):  # noqa: ARG002
        return {"logits": self.last(self.embedding(input_ids).mean(1))}


def test_rows_are_taken_out_of_evaluations_too(tmp_path):
    from imae.integrations.transformers import AuditCallback, loss_function

    tokens, _, given = texts()
    rows, callback = Rows(tokens, given), AuditCallback(tmp_path / "run", given)
    options = {"max_steps": 8, "remove_unused_columns": False, "callbacks": [callback]}
    trainer = trained(tmp_path, Strict(), rows, loss_function("imae", T=8.0), **options)
    assert trainer.predict(rows).predictions.shape == (len(given), 3)
    assert pickle.loads(pickle.dumps(trainer.model)), "a whole model can be saved"


def hooks(model):
    return [*model._forward_hooks, *model._forward_pre_hooks]


def test_a_model_can_be_trained_again_with_or_without_a_callback(tmp_path):
    from transformers import TrainerCallback

    from imae.integrations.transformers import AuditCallback, loss_function

    tokens, _, given = texts()
    loss, model = loss_function("imae", T=8.0), classifier()
    options = {"max_steps": 8, "remove_unused_columns": False}

    def train(callbacks, **keys):
        rows = Rows(tokens, given, **keys)
        trained(tmp_path, model, rows, loss, callbacks=callbacks, **options)

    train([AuditCallback(tmp_path / "first", given)])
    assert len(hooks(model)) == 1, "that which takes rows out of an evaluation"
    train([], with_row=False)
    train([AuditCallback(tmp_path / "second", given)])
    assert len(audit(tmp_path / "second")) == len(given)

    class Interrupting(TrainerCallback):
        def on_step_end(self, *args, **kwargs):  # noqa: ARG002
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train([AuditCallback(tmp_path / "third", given), Interrupting()])
    train([], with_row=False)
    train([AuditCallback(tmp_path / "fourth", given)])
    assert len(audit(tmp_path / "fourth")) == len(given)


def test_a_second_training_does_not_add_to_the_run_of_the_first(tmp_path):
    from imae.integrations.transformers import AuditCallback

    tokens, _, given = texts()
    callback = AuditCallback(tmp_path / "run", given)
    options = {"num_train_epochs": 2, "remove_unused_columns": False}
    trainer = trained(
        tmp_path, classifier(), Rows(tokens, given), None, callbacks=[callback], **options
    )
    with pytest.raises(ArgumentError, match="holds a run; choose another folder"):
        trainer.train()
    assert RunFolder(tmp_path / "run").epochs() == [1, 2]
    assert not hooks(trainer.model)


def test_rows_that_do_not_arrive_are_one_clear_line(tmp_path):
    from imae.integrations.transformers import AuditCallback

    tokens, _, given = texts()
    callback = AuditCallback(tmp_path / "run", given)
    with pytest.raises(ArgumentError, match="remove_unused_columns=False"):
        trained(tmp_path, classifier(), Rows(tokens, given), None, callbacks=[callback])
    other = AuditCallback(tmp_path / "run", given)
    with pytest.raises(DataError, match="the batch has no 'row'"):
        trained(
            tmp_path,
            classifier(),
            Rows(tokens, given, with_row=False),
            None,
            callbacks=[other],
            remove_unused_columns=False,
        )
