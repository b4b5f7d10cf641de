import copy
import inspect
import pickle
import re

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

import imae
import imae.losses
from imae.curves import CCE, CURVES, DM, GCE, IMAE, MAE, Focal, FromWeight, Scale, Sum, Window
from imae.errors import ArgumentError
from imae.losses import (
    AGCELoss,
    BoundedLogits,
    CappedLogits,
    CCELoss,
    CurveLoss,
    DFTLoss,
    DMLoss,
    FocalLoss,
    ForwardSymmetricLoss,
    GCELoss,
    ICCELoss,
    IMAELoss,
    MAELoss,
    SLLoss,
    TruncatedGCELoss,
    curve_loss,
)


def without_address(thing: object) -> str:
    """The name of a case, the same in every process."""
    return re.sub(r" at 0x\w+", "", repr(thing))[:70]


MODULES = [
    CCELoss(),
    MAELoss(),
    DFTLoss(),
    IMAELoss(T=4.0),
    GCELoss(q=0.5),
    TruncatedGCELoss(q=0.5, k=0.2),
    SLLoss(alpha=0.2, beta=0.5, A=-3.0),
    FocalLoss(gamma=1.0),
    AGCELoss(a=1.0, q=0.5),
    DMLoss(beta=4.0, lam=1.5),
    ICCELoss(T=1.0),
    imae.SharpGCELoss(T=3.0, q=0.8),
    ForwardSymmetricLoss(rate=0.2, num_classes=4),
]
LOGITS = torch.randn(6, 4, generator=torch.Generator().manual_seed(4))
TARGET = torch.tensor([0, 1, 2, 3, -100, 1])

# torch's compiler and its forward mode use parts of torch that torch itself has deprecated.
TORCH_WARNS = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def fresh_compiler():
    """A compiler that has seen nothing, and forgets what it saw."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def with_gradient(loss, logits=LOGITS, target=TARGET):
    logits = logits.detach().clone().requires_grad_()
    value = loss(logits, target)
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    return value.detach(), gradient


@pytest.mark.parametrize("module", MODULES, ids=lambda module: type(module).__name__)
def test_a_module_is_its_curve(module):
    expected = with_gradient(lambda z, y: curve_loss(z, y, module.curve))
    torch.testing.assert_close(with_gradient(module), expected)


def test_every_curve_has_its_module():
    kinds = {type(module.curve) for module in MODULES}
    assert {entry.build for entry in CURVES} <= kinds
    public = {
        kind
        for kind in (getattr(imae.losses, name) for name in dir(imae.losses))
        if inspect.isclass(kind) and issubclass(kind, CurveLoss) and kind is not CurveLoss
    }
    assert public == {type(module) for module in MODULES}
    assert all(getattr(imae, kind.__name__) is kind for kind in public)


@pytest.mark.parametrize("entry", CURVES, ids=lambda entry: entry.name)
def test_modules_have_the_defaults_of_their_curves(entry):
    kind = getattr(imae, f"{entry.build.__name__}Loss")
    given = {"rate": 0.4, "num_classes": 10} if entry.name == "forward_symmetric" else {}
    assert kind(**given).curve == entry.build()


def test_dft_is_half_of_mae():
    assert DFTLoss().curve == Scale(MAE(), 0.5)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_every_option_goes_through(reduction, smoothing):
    options = {
        "weight": torch.tensor([1.0, 2.0, 0.5, 1.0]),
        "ignore_index": 1,
        "reduction": reduction,
        "label_smoothing": smoothing,
        "normalize": "batch",
    }
    target = TARGET.clamp(min=0)
    for module in (IMAELoss(T=2.0, **options), CurveLoss(IMAE(T=2.0), **options)):
        expected = curve_loss(LOGITS, target, IMAE(T=2.0), **options)
        torch.testing.assert_close(module(LOGITS, target), expected)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_it_replaces_cross_entropy(reduction):
    weight = torch.tensor([1.0, 2.0, 0.5, 1.0])
    options = {"weight": weight, "reduction": reduction, "label_smoothing": 0.1}
    ours, theirs = CCELoss(**options), torch.nn.CrossEntropyLoss(**options)
    torch.testing.assert_close(with_gradient(ours), with_gradient(theirs))
    assert ours.state_dict().keys() == theirs.state_dict().keys()


def test_state_is_empty_without_class_weights():
    assert all(not module.state_dict() for module in MODULES)
    assert all(not list(module.parameters()) for module in MODULES)


def test_class_weights_move_and_are_saved():
    module = GCELoss(weight=torch.ones(4))
    assert list(module.state_dict()) == ["weight"]
    assert module.double().weight.dtype == torch.float64
    other = GCELoss(weight=torch.zeros(4))
    other.load_state_dict(module.state_dict())
    assert torch.equal(other.weight, torch.ones(4))
    assert module.to("meta").weight.device.type == "meta"


@pytest.mark.parametrize("module", MODULES, ids=lambda module: type(module).__name__)
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_are_equal(module, copied):
    twin = copied(module)
    assert type(twin) is type(module)
    assert twin.curve == module.curve
    assert repr(twin) == repr(module)
    torch.testing.assert_close(with_gradient(twin), with_gradient(module))


def test_repr_shows_the_curve_and_the_options():
    text = repr(IMAELoss(T=4.0, reduction="sum", normalize="batch"))
    assert text == "IMAELoss(IMAE(T=4.0), reduction='sum', normalize='batch')"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: IMAELoss(T=-1.0), "T must be in"),
        (lambda: GCELoss(q=0.0), "q must be in"),
        (lambda: GCELoss(q=1.5), "q must be in"),
        (lambda: CCELoss(reduction="average"), "reduction must be one of none, mean, sum, got"),
        (lambda: CCELoss(normalize="rows"), "normalize must be one of"),
        (lambda: ForwardSymmetricLoss(rate=0.9, num_classes=10), "rate must be in"),
    ],
)
def test_what_is_wrong_is_said_when_it_is_built(build, message):
    with pytest.raises(ArgumentError, match=message):
        build()


TRANSFORMED = [
    IMAELoss(T=8.0),
    IMAELoss(T=8.0, normalize="batch", weight=torch.tensor([1.0, 2.0, 0.5, 1.0])),
    GCELoss(label_smoothing=0.1),
    CurveLoss(Window(Sum((CCE(), Focal())), low=-6.0, high=5.0), reduction="sum"),
    CurveLoss(DM(), reduction="none"),
    CurveLoss(FromWeight(torch.exp)),
]


def assert_compiles(module, **options):
    compiled = torch.compile(module, fullgraph=True, **options)
    torch.testing.assert_close(with_gradient(compiled), with_gradient(module))
    if options["dynamic"]:
        fewer = LOGITS[:4], TARGET[:4]
        torch.testing.assert_close(with_gradient(compiled, *fewer), with_gradient(module, *fewer))


@TORCH_WARNS
@pytest.mark.usefixtures("fresh_compiler")
def test_compiles_whole_with_its_gradient():
    assert_compiles(TRANSFORMED[0], dynamic=False, backend="aot_eager")


@TORCH_WARNS
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("module", [TRANSFORMED[2], TRANSFORMED[3]], ids=without_address)
def test_compiles_whole_for_any_number_of_rows(module):
    assert_compiles(module, dynamic=True, backend="eager")


@TORCH_WARNS
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize(
    "module", [IMAELoss(8.0, cap=0.75), CappedLogits(0.75), BoundedLogits(5.0)], ids=repr
)
def test_limits_compile_whole_with_a_number_that_may_change(module):
    def loss(logits, target):
        return module(logits, target) if isinstance(module, IMAELoss) else module(logits)

    assert_compiles(loss, dynamic=True, backend="eager")


@TORCH_WARNS
@pytest.mark.slow  # a C++ compiler runs; the default tests compile without it
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("module", TRANSFORMED, ids=without_address)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_all_compile_to_machine_code(module, dynamic):
    assert_compiles(module, dynamic=dynamic)


def count_compilations(T, new_value):
    """How often a step with a temperature is compiled while the temperature changes."""
    graphs = []

    def backend(graph, inputs):  # noqa: ARG001
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    step = torch.compile(lambda z, t: curve_loss(z, TARGET, IMAE(T=t)), backend=backend)
    for k in range(1, 4):
        expected = curve_loss(LOGITS, TARGET, IMAE(T=float(k)))
        torch.testing.assert_close(step(LOGITS, new_value(T, float(k))), expected)
    return len(graphs)


@TORCH_WARNS
@pytest.mark.usefixtures("fresh_compiler")
def test_a_tensor_for_the_temperature_changes_without_compiling_anew():
    assert count_compilations(torch.tensor(0.0), lambda T, value: T.fill_(value)) == 1


@TORCH_WARNS
@pytest.mark.usefixtures("fresh_compiler")
def test_the_count_of_compilations_can_grow():
    assert count_compilations(0.0, lambda _, value: value) > 1


@TORCH_WARNS
@pytest.mark.usefixtures("fresh_compiler")
def test_a_module_with_a_tensor_for_the_temperature_follows_a_schedule_when_compiled():
    T = torch.tensor(8.0)
    compiled = torch.compile(IMAELoss(T=T), fullgraph=True, backend="eager")
    for value in (8.0, 2.0):
        T.fill_(value)
        torch.testing.assert_close(compiled(LOGITS, TARGET), IMAELoss(T=value)(LOGITS, TARGET))


@pytest.mark.parametrize("module", TRANSFORMED, ids=without_address)
def test_function_transforms_agree(module):
    def total(z, y):
        return module(z, y).sum()

    _, gradient = with_gradient(module)
    torch.testing.assert_close(torch.func.grad(total)(LOGITS, TARGET), gradient)
    torch.testing.assert_close(torch.func.jacrev(total)(LOGITS, TARGET), gradient)


@TORCH_WARNS
@pytest.mark.parametrize("module", TRANSFORMED, ids=without_address)
def test_forward_mode_agrees(module):
    def total(z):
        return module(z, TARGET).sum()

    logits = LOGITS.double()
    weight = None if module.weight is None else module.weight
    assert weight is None or weight.dtype == torch.float32
    _, gradient = with_gradient(module, logits)
    torch.testing.assert_close(torch.func.jacfwd(total)(logits), gradient)
    expected = torch.autograd.functional.hessian(total, logits)
    torch.testing.assert_close(torch.func.hessian(total)(logits), expected)


@pytest.mark.parametrize("curve", [IMAE(T=8.0), GCE(), Focal(), DM()], ids=without_address)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_gradients_of_single_rows(curve, smoothing):
    def one(z, y):
        return curve_loss(z, y, curve, label_smoothing=smoothing)

    target = TARGET.clamp(min=0)
    rows = torch.func.vmap(torch.func.grad(one))(LOGITS, target)
    for row, z, y in zip(rows, LOGITS, target, strict=True):
        torch.testing.assert_close(row, with_gradient(one, z, y)[1])


def test_ignored_rows_under_vmap():
    losses = torch.func.vmap(CurveLoss(CCE(), reduction="sum"))(LOGITS, TARGET)
    expected = curve_loss(LOGITS, TARGET, CCE(), reduction="none")
    torch.testing.assert_close(losses, expected)


@TORCH_WARNS
@pytest.mark.parametrize("module", TRANSFORMED[:4], ids=without_address)
def test_exports(module):
    program = torch.export.export(module, (LOGITS, TARGET))
    torch.testing.assert_close(program.module()(LOGITS, TARGET), module(LOGITS, TARGET))


@pytest.mark.parametrize("module", TRANSFORMED, ids=without_address)
@pytest.mark.parametrize("grad", [True, False])
def test_shapes_without_numbers(module, grad):
    expected = module(LOGITS, TARGET)
    on_meta = copy.deepcopy(module).to("meta")
    logits = LOGITS.to("meta").requires_grad_(grad)
    result = on_meta(logits, TARGET.to("meta"))
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = mode.from_tensor(LOGITS.clone()).requires_grad_(grad)
        result = module(fake, mode.from_tensor(TARGET))
        assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
        if grad:
            result.sum().backward()
            assert fake.grad.shape == LOGITS.shape


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("module", TRANSFORMED, ids=without_address)
def test_under_checkpoint(module, reentrant):
    result = with_gradient(lambda z, y: checkpoint(module, z, y, use_reentrant=False))
    torch.testing.assert_close(result, with_gradient(module))
    if reentrant:  # which works with backward alone
        logits = LOGITS.clone().requires_grad_()
        checkpoint(module, logits, TARGET, use_reentrant=True).sum().backward()
        torch.testing.assert_close(logits.grad, result[1])


@pytest.mark.parametrize("module", TRANSFORMED, ids=without_address)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_gives_float32(module, dtype):
    half = LOGITS.to(dtype)
    expected = with_gradient(module, half.float())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, gradient = with_gradient(module, half)
        single, _ = with_gradient(module, half.float())
    assert loss.dtype == single.dtype == torch.float32
    assert gradient.dtype == dtype
    torch.testing.assert_close(loss, expected[0])
    torch.testing.assert_close(single, expected[0])
    bound = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(gradient.float(), expected[1], rtol=bound, atol=bound * 1e-3)


def test_autocast_through_a_network():
    torch_linear = torch.nn.Linear(5, 4)
    features = torch.randn(6, 5, generator=torch.Generator().manual_seed(1))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = IMAELoss(T=8.0)(torch_linear(features), TARGET)
    loss.backward()
    assert loss.dtype == torch.float32
    assert bool(torch_linear.weight.grad.isfinite().all())


def test_inference_mode():
    with torch.inference_mode():
        losses = [module(LOGITS, TARGET) for module in TRANSFORMED]
    for loss, module in zip(losses, TRANSFORMED, strict=True):
        torch.testing.assert_close(loss.clone(), module(LOGITS, TARGET))


@pytest.mark.parametrize("make", [CCELoss, IMAELoss, GCELoss])
def test_class_weights_may_be_a_list(make):
    weights = [1.0, 2.0, 0.5, 1.0]
    expected = with_gradient(make(weight=torch.tensor(weights)))
    torch.testing.assert_close(with_gradient(make(weight=weights)), expected)
    plain = curve_loss(LOGITS, TARGET, make().curve, weight=weights)
    torch.testing.assert_close(plain, expected[0])


@pytest.mark.parametrize("weight", [["a", "b"], 3 * [None], [[1.0], [2.0, 3.0]]])
def test_class_weights_that_are_not_numbers_are_refused(weight):
    with pytest.raises(ArgumentError, match="weight must be a tensor or a list of one number"):
        IMAELoss(weight=weight)


def gradient_of_parameter(curve, *, compiled=False, **options):
    T = torch.nn.Parameter(torch.tensor(2.0))
    module = CurveLoss(curve(T), **options)
    assert list(module.parameters()) == [T]
    call = torch.compile(module, backend="eager") if compiled else module
    logits = LOGITS.clone().requires_grad_()
    call(logits, TARGET).backward()
    return T.grad, logits.grad


@TORCH_WARNS
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("curve", [IMAE, lambda T: Sum((CCE(), Scale(IMAE(T), 0.5)))])
def test_a_parameter_of_the_curve_is_trained(curve, compiled):
    loss_at, of_logits = gradient_of_parameter(curve, compiled=compiled)
    step = 1e-3
    above, below = (
        curve_loss(LOGITS.double(), TARGET, curve(2.0 + sign * step)) for sign in (1, -1)
    )
    torch.testing.assert_close(loss_at.double(), (above - below) / (2 * step), rtol=1e-4, atol=1e-6)
    _, expected = with_gradient(CurveLoss(curve(2.0)))
    torch.testing.assert_close(of_logits, expected)


TRAINED = {
    "imae": (IMAE, 4.0),
    "dm": (lambda beta: DM(beta=beta, lam=0.7), 3.0),
    "gce": (GCE, 0.6),
    "focal": (Focal, 1.5),
    "icce": (imae.curves.ICCE, 2.0),
    "sharp_gce": (lambda T: imae.curves.SharpGCE(T=T, q=0.7), 3.0),
    "q of sharp_gce": (lambda q: imae.curves.SharpGCE(q=q), 0.3),
    "agce": (lambda a: imae.curves.AGCE(a=a, q=0.5), 0.6),
    "sl": (lambda alpha: imae.curves.SL(alpha=alpha), 0.3),
    "sum": (lambda T: Sum((CCE(), Scale(IMAE(T), 0.5))), 4.0),
}


@pytest.mark.parametrize("normalize", [None, "half", "chance"])
@pytest.mark.parametrize("name", TRAINED)
def test_a_trained_parameter_has_the_derivative_of_the_whole_loss(name, normalize):
    curve, start = TRAINED[name]
    logits = torch.tensor([[1.0, 0.0, 0.5]], dtype=torch.float64, requires_grad=True)

    def loss_at(parameter):
        return curve_loss(logits, torch.tensor([1]), curve(parameter), normalize=normalize)

    parameter = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(loss_at, parameter)
    torch.testing.assert_close(loss_at(parameter), loss_at(start))


def test_sharp_gce_learns_t_from_zero_on():
    logits, target = torch.tensor([[1.0, 0.0, 0.5]], dtype=torch.float64), torch.tensor([1])
    T = torch.tensor(0.0, dtype=torch.float64, requires_grad=True)
    loss = curve_loss(logits, target, imae.curves.SharpGCE(T=T))
    (at_zero,) = torch.autograd.grad(loss, T)
    above = curve_loss(logits, target, imae.curves.SharpGCE(T=1e-6))
    assert at_zero > 0.01
    torch.testing.assert_close(at_zero, (above - loss.detach()) / 1e-6, rtol=1e-5, atol=0)


def test_a_parameter_of_the_curve_moves_and_is_saved_with_the_module():
    module = IMAELoss(T=torch.nn.Parameter(torch.tensor(2.0)))
    module.load_state_dict({name: torch.tensor(5.0) for name in module.state_dict()})
    assert module.curve.T.item() == 5.0
    assert copy.deepcopy(module).curve.T.item() == 5.0
    assert module.double().curve.T.dtype == torch.float64
    twin = copy.deepcopy(module)
    assert next(twin.parameters()) is twin.curve.T


@pytest.mark.parametrize("curve", [IMAE, lambda T: Sum((CCE(), Scale(IMAE(T), 0.5)))])
def test_a_parameter_of_the_curve_may_be_replaced(curve):
    module = CurveLoss(curve(torch.nn.Parameter(torch.tensor(8.0))))
    expected = CurveLoss(curve(1.0))(LOGITS, TARGET)
    one = {"parameter_0": torch.tensor(1.0)}
    torch.testing.assert_close(functional_call(module, one, (LOGITS, TARGET)), expected)

    def loss_at(T):
        return functional_call(module, {"parameter_0": T}, (LOGITS, TARGET))

    T = torch.tensor(1.0)
    step = 1e-2
    torch.testing.assert_close(
        torch.func.grad(loss_at)(T),
        (loss_at(T + step) - loss_at(T - step)) / (2 * step),
        rtol=1e-3,
        atol=0,
    )
    module.load_state_dict(one, assign=True)
    torch.testing.assert_close(module(LOGITS, TARGET), expected)


@pytest.mark.parametrize("module", TRANSFORMED, ids=without_address)
def test_batched_gradients_agree(module):
    logits = LOGITS.clone().requires_grad_()
    losses = module(logits, TARGET).reshape(-1)
    seeds = torch.eye(len(losses)).repeat(2, 1) * 3
    (batched,) = torch.autograd.grad(losses, logits, seeds, is_grads_batched=True)
    for seed, gradient in zip(seeds, batched, strict=True):
        again = LOGITS.clone().requires_grad_()
        (one,) = torch.autograd.grad(module(again, TARGET).reshape(-1), again, seed)
        torch.testing.assert_close(gradient, one)


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("module", TRANSFORMED, ids=without_address)
def test_a_vectorised_jacobian_agrees(module, create_graph):
    def loss(z):
        return module(z, TARGET)

    jacobian = torch.autograd.functional.jacobian
    logits = LOGITS.clone().requires_grad_()
    plain = jacobian(loss, logits, create_graph=create_graph)
    fast = jacobian(loss, logits, vectorize=True, create_graph=create_graph)
    torch.testing.assert_close(fast, plain)
