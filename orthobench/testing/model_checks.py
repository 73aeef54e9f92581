"""The checks of model plugins."""

from __future__ import annotations

from typing import Any

import torch

from orthobench.errors import UsageError
from orthobench.model import Model, ModelSettings, Signature
from orthobench.model.build import build_model
from orthobench.probes.orthogonality import orthogonality
from orthobench.recurrence import GradientTrace
from orthobench.settings import describe_settings
from orthobench.task import TrainingSettings
from orthobench.testing.require import no_global_draws, require, require_apart
from orthobench.training.optimizers import build_optimizer

# All different, because a model that confuses two axes would otherwise pass.
TIME, BATCH, INPUTS, OUTPUTS, HIDDEN = 7, 3, 2, 4, 8
UNKNOWN = "no known optimizer"


def _make(model_class: Any, readout: Any = "all", seed: int = 1, settings: Any = None) -> Model:
    settings = settings or model_class.Settings.read({"hidden_size": HIDDEN})
    model = build_model(model_class, settings, Signature(INPUTS, OUTPUTS, readout), torch.Generator().manual_seed(seed))
    require(isinstance(model, Model), "the class is not derived from Model")
    assert isinstance(model, Model)
    return model


def _inputs(time: int = TIME) -> torch.Tensor:
    return torch.randn(time, BATCH, INPUTS, generator=torch.Generator().manual_seed(2))


def settings_have_names_of_their_own(model_class: Any) -> None:
    """No setting has the same name as a training setting. A run compares those of its own task."""
    require_apart(model_class.Settings.model_fields, TrainingSettings.model_fields, "training")


def outputs_have_the_signatures_shape(model_class: Any) -> None:
    """Outputs are finite and [B, p] for readout "last", [T, B, p] for "all"; the last step of "all" equals "last"."""
    last, _ = _make(model_class, "last")(_inputs())
    everything, _ = _make(model_class, "all")(_inputs())
    require(last.shape == (BATCH, OUTPUTS), f"readout last gives {list(last.shape)}, not {[BATCH, OUTPUTS]}")
    shape = [TIME, BATCH, OUTPUTS]
    require(list(everything.shape) == shape, f"readout all gives {list(everything.shape)}, not {shape}")
    require(bool(everything.isfinite().all()), "outputs are not finite")
    torch.testing.assert_close(everything[-1], last)


def readouts_agree_with_all_steps(model_class: Any) -> None:
    """The other readouts select or average the outputs of readout "all"."""
    everything, _ = _make(model_class)(_inputs())
    lengths, positions = torch.tensor([TIME, 1, TIME - 2]), torch.tensor([[0, 0, 4], [TIME - 1, 0, 2]])
    sequences = range(BATCH)
    expected = {
        "last_valid": torch.stack([everything[lengths[b] - 1, b] for b in sequences]),
        "mean": torch.stack([everything[: lengths[b], b].mean(0) for b in sequences]),
        "positions": torch.stack([torch.stack([everything[row[b], b] for b in sequences]) for row in positions]),
    }
    for readout, values in expected.items():
        outputs, _ = _make(model_class, readout)(_inputs(), lengths=lengths, positions=positions)
        require(
            outputs.shape == values.shape and torch.allclose(outputs, values, rtol=1e-4, atol=1e-5),
            f"readout {readout} does not equal that of the outputs of all steps",
        )


def padding_changes_nothing(model_class: Any) -> None:
    """Steps after the end of a sequence change neither the outputs before nor the gradients of the parameters."""
    lengths, results = torch.full((BATCH,), TIME), []
    for padding in (0, 3):
        model = _make(model_class, "last_valid")
        noise = torch.randn(padding, BATCH, INPUTS, generator=torch.Generator().manual_seed(3))
        outputs, _ = model(torch.cat((_inputs(), noise)), lengths=lengths)
        outputs.square().mean().backward()
        results.append([outputs, *(p.grad for p in model.parameters() if p.grad is not None)])
    for value, padded in zip(*results, strict=True):
        require(
            torch.allclose(value, padded, rtol=1e-3, atol=1e-5),
            "steps after the end of a sequence change its outputs or gradients: read no later step",
        )


def the_final_state_continues_a_sequence(model_class: Any) -> None:
    """Two halves give the outputs of the whole sequence if the second one starts from the final state of the first."""
    model = _make(model_class)
    whole, _ = model(_inputs())
    first, state = model(_inputs()[:3])
    second, _ = model(_inputs()[3:], state)
    torch.testing.assert_close(torch.cat((first, second)), whole, rtol=1e-4, atol=1e-5)


def every_setting_is_read(model_class: Any) -> None:
    """The model reads each setting of its own while it is built, runs or names its parameter groups.

    A setting may depend on another one, so the check also tries other values of the settings. A stack is not checked,
    because it has an output map of its own.
    """
    if model_class.Settings().is_stack:
        return
    own = set(model_class.Settings.model_fields) - set(ModelSettings.model_fields)
    others = [{name: value} for name in sorted(own) for value in _some_values(model_class.Settings, name)]
    unread = set(own)
    for values in ({}, *others):
        if unread:
            unread -= _read_settings(model_class, values)
    names = ", ".join(sorted(unread))
    require(
        not unread, f"nothing reads the setting{'s' * (len(unread) > 1)} {names}: use it, or leave it out of Settings"
    )


def _some_values(settings: Any, name: str) -> list[Any]:
    """Return values that a setting may accept."""
    (described,) = [each for each in describe_settings(settings) if each.name == name]
    return [*described.choices] or [2, 1, 0.5, "none"]


def _read_settings(model_class: Any, values: dict[str, Any]) -> set[str]:
    """Return the settings that a model with these values reads; an empty set if the model refuses them."""
    read: set[str] = set()

    def note(self: Any, name: str) -> Any:
        read.add(name)
        return object.__getattribute__(self, name)

    base = model_class.Settings
    noting: Any = type(base.__name__, (base,), {"__getattribute__": note, "__module__": base.__module__})
    try:
        settings = noting.read({"hidden_size": HIDDEN, **values})
        read.clear()  # validators have read the settings, too
        model = _make(model_class, settings=settings)
        model(_inputs(), trace=GradientTrace())
        model.parameter_groups()
        model.penalty()
        model.recurrent_matrices()
    except Exception:  # of the settings, which a plugin may refuse with any error
        if not values:
            raise
        return set()
    return set(base.model_fields) if "model_dump" in read or "__dict__" in read else read


def settings_name_known_optimizers(model_class: Any) -> None:
    """A setting that names an optimiser accepts only known names."""
    for name in model_class.Settings.model_fields:
        try:
            settings = model_class.Settings.read({"hidden_size": HIDDEN, name: UNKNOWN})
        except UsageError:
            continue
        require(
            "optimizer" not in name and UNKNOWN not in _optimizers(model_class, settings),
            f"the setting {name} accepts any text as an optimiser: declare it as orthobench.model.OptimizerName",
        )


def _optimizers(model_class: Any, settings: Any) -> set[str]:
    """Return the optimisers of a model with these settings; an empty set if the model refuses the settings."""
    try:
        return {str(group.optimizer) for group in _make(model_class, settings=settings).parameter_groups()}
    except Exception:  # a plugin may refuse the settings with any error
        return set()


def random_numbers_come_from_the_generator(model_class: Any) -> None:
    """The same generator gives the same model, another one gives another model, and no global generator is used."""
    with no_global_draws("__init__"):
        first, second, third = (_make(model_class, seed=seed).state_dict() for seed in (1, 1, 2))
    model = _make(model_class)
    with no_global_draws("the forward pass"):
        model(_inputs())
    require(all(torch.equal(first[name], second[name]) for name in first), "the same generator gives another model")
    require(any(not torch.equal(first[name], third[name]) for name in first), "another generator gives the same model")


def every_parameter_is_trained_once(model_class: Any) -> None:
    """Every trainable parameter is in exactly one group, and a loss reaches it with a finite gradient."""
    model = _make(model_class)
    # By identity, because == compares tensors number by number.
    grouped = [id(parameter) for group in model.parameter_groups() for parameter in group.parameters]
    outputs, _ = model(_inputs())
    outputs.square().mean().backward()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            require(grouped.count(id(parameter)) == 1, f"{name} is in {grouped.count(id(parameter))} parameter groups")
            require(parameter.grad is not None and bool(parameter.grad.isfinite().all()), f"{name} gets no gradient")
    require(model.parameter_count() > 0, "it counts no parameters")


def the_gradient_is_traced(model_class: Any) -> None:
    """A trace receives ||dL/dh_t|| for every step and sample, and changes nothing."""
    model, trace = _make(model_class), GradientTrace()
    outputs, _ = model(_inputs(), trace=trace)
    torch.testing.assert_close(outputs, model(_inputs())[0])
    outputs.square().mean().backward()
    require("h" in trace.norms, "the trace received no state called h: pass it to the recurrence")
    for state, norms in trace.norms.items():
        require(norms.shape == (TIME, BATCH), f"the trace of {state} is {list(norms.shape)}, not {[TIME, BATCH]}")
        require(bool((norms[-1] > 0).all()), f"no gradient reached the last {state}")


def matrices_are_square_and_orthogonal(model_class: Any) -> None:
    """Recurrent matrices are square; in an orthogonal model they are orthogonal before and after five steps."""
    model = _make(model_class)
    optimizers = [build_optimizer(g.optimizer, g.parameters, 10 * g.learning_rate) for g in model.parameter_groups()]
    for _ in range(6):
        for name, matrix in model.recurrent_matrices().items():
            n = matrix.shape[-1]
            require(matrix.shape == (n, n), f"{name} is {list(matrix.shape)}, not square")
            if model_class.orthogonal:
                distance, allowed = orthogonality(matrix.detach()), 10 * n * torch.finfo(matrix.dtype).eps
                require(distance <= allowed, f"{name} is not orthogonal: ||W'W - I|| = {distance:.2g}")
        model.zero_grad()
        model(_inputs())[0].square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()
        with torch.no_grad():
            model.after_step()


def the_state_dict_is_complete(model_class: Any) -> None:
    """A model that loads the state_dict of another one gives the same outputs, bit for bit."""
    source, target = _make(model_class, seed=1), _make(model_class, seed=2)
    target.load_state_dict(source.state_dict())
    require(torch.equal(source(_inputs())[0], target(_inputs())[0]), "the state_dict is not the whole model")


def cells_can_be_stacked(model_class: Any) -> None:
    """Two blocks of the cell have the shapes of the signature, continue a sequence, and train every parameter."""
    settings = model_class.Settings.read({"hidden_size": HIDDEN, "layers": 2, "block": "residual"})
    last, _ = _make(model_class, "last", settings=settings)(_inputs())
    model = _make(model_class, settings=settings)
    whole, _ = model(_inputs())
    shapes = [list(last.shape), list(whole.shape)]
    require(shapes == [[BATCH, OUTPUTS], [TIME, BATCH, OUTPUTS]], f"two blocks give outputs {shapes}")
    torch.testing.assert_close(whole[-1], last)
    first, state = model(_inputs()[:3])
    torch.testing.assert_close(torch.cat((first, model(_inputs()[3:], state)[0])), whole, rtol=1e-4, atol=1e-5)
    whole.square().mean().backward()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            require(parameter.grad is not None, f"in a stack {name} gets no gradient")


CHECKS = (
    random_numbers_come_from_the_generator,
    settings_have_names_of_their_own,
    settings_name_known_optimizers,
    every_setting_is_read,
    outputs_have_the_signatures_shape,
    readouts_agree_with_all_steps,
    padding_changes_nothing,
    the_final_state_continues_a_sequence,
    every_parameter_is_trained_once,
    the_gradient_is_traced,
    matrices_are_square_and_orthogonal,
    the_state_dict_is_complete,
    cells_can_be_stacked,
)
