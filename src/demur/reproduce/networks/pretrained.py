"""Pretrained networks by name: from torchvision, from timm, or from a function of the user."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demur.posteriors.fingerprint import describe_code, fingerprint

_ACCEPTED_NAMES = (
    "a name of torchvision or timm, such as efficientnet_v2_s, torchvision:resnet50 or "
    "timm:resnet50.a1_in1k, or module:function that returns a network and its preprocessing"
)


@dataclass(frozen=True)
class PretrainedNetwork:
    """A network with its preprocessing.

    Attributes
    ----------
    name
        Short, usable as a file name.
    model
        A ``torch.nn.Module``.
    preprocess
        From a pillow image to a float tensor (3, height, width).
    input
        A description of the preprocessing.
    fingerprint
        Hexadecimal digits that depend on the layers, their parameters and the preprocessing, but not on the
        versions of libraries.
    """

    name: str
    model: Any
    preprocess: Callable[[Any], Any]
    input: str
    fingerprint: str


def open_network(spec: str, weights: str | os.PathLike[str] | None = None) -> PretrainedNetwork:
    """Open a network.

    Parameters
    ----------
    spec
        "torchvision:NAME" or "timm:NAME", if installed; a bare name is looked up in torchvision first and
        then in timm. A tag after a dot chooses among published weights: "resnet50.IMAGENET1K_V1" of
        torchvision, "resnet50.a1_in1k" of timm; without it, the library's default. The preprocessing
        is the one that belongs to the weights. Or "module:function": the function takes no arguments and
        returns the network and its preprocessing, from a pillow image to a float tensor (3, height, width).
        Importing the module runs its code.
    weights
        A file of parameters: safetensors, or a state dict from ``torch.save``, which is read without running
        code from it. None: the published ones, which torchvision and timm download at first use, or those
        that the function has set.
    """
    _require_torch()
    source, colon, rest = spec.partition(":")
    if not spec or (colon and not rest):
        raise ValueError(f"models: expected {_ACCEPTED_NAMES}; got {spec!r}")
    if source == "torchvision" and colon:
        model, preprocess = _open_from_torchvision(rest, weights)
    elif source == "timm" and colon:
        model, preprocess = _open_from_timm(rest, weights)
    elif colon:
        model, preprocess = _open_from_function(source, rest)
    else:
        model, preprocess = _open_from_either(spec, weights)
    if weights is not None:
        load_weights(model, Path(weights), spec)
    input = _describe_preprocessing(preprocess)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", rest if colon else spec)
    code = input if input != type(preprocess).__qualname__ else describe_code(preprocess)
    return PretrainedNetwork(name, model, preprocess, input, fingerprint(model, code))


def _open_from_either(name: str, weights: Any) -> tuple[Any, Any]:
    """Return a network and its preprocessing from the library that has the name."""
    tried = []
    for library, opener in (("torchvision", _open_from_torchvision), ("timm", _open_from_timm)):
        try:
            found = _import_optional(library)
        except ValueError as error:
            tried.append(str(error).removeprefix("models: expected "))
            continue
        if _has_name(library, found, name):
            return opener(name, weights)
        tried.append(f"{library} has no such name")
    raise ValueError(f"models: expected {_ACCEPTED_NAMES}; got {name!r} ({'; '.join(tried)})")


def _has_name(library: str, module: Any, name: str) -> bool:
    """Return whether a library has a network of this name."""
    if library == "timm":
        return bool(module.is_model(name))
    models: Any = importlib.import_module("torchvision.models")
    plain, _, tag = name.partition(".")
    # Names with a timm tag, such as resnet50.a1_in1k, begin with names that torchvision has too.
    return plain in models.list_models() and (not tag or tag in models.get_model_weights(plain).__members__)


def _open_from_torchvision(name: str, weights: Any) -> tuple[Any, Any]:
    """Return a network from torchvision with the preprocessing of its published weights."""
    _import_optional("torchvision")
    models: Any = importlib.import_module("torchvision.models")
    plain, _, tag = name.partition(".")
    if plain not in models.list_models():
        raise ValueError(
            "models: expected a name of torchvision.models.list_models(), such as efficientnet_v2_s; got "
            f"{name!r}"
        )
    published = models.get_model_weights(plain)
    if (tag or "DEFAULT") not in published.__members__:
        tags = ", ".join(each for each in published.__members__ if each != "DEFAULT")
        raise ValueError(
            f"models: expected weights of torchvision's {plain} among {tags or 'none'}; got {name!r}"
        )
    chosen = published[tag or "DEFAULT"]
    if weights is None:
        with _explain_failed_download(f"torchvision:{name}"):
            return models.get_model(plain, weights=chosen), chosen.transforms()
    model = models.get_model(plain, weights=None)
    # Inception and GoogLeNet transform their inputs only if told that the weights are published ones.
    if hasattr(model, "transform_input"):
        model.transform_input = True
    return model, chosen.transforms()


def _open_from_timm(name: str, weights: Any) -> tuple[Any, Any]:
    """Return a network from timm with the preprocessing of its configuration."""
    timm = _import_optional("timm")
    data: Any = importlib.import_module("timm.data")
    if not name.startswith(("hf-hub:", "hf_hub:")) and not timm.is_model(name):
        raise ValueError(
            f"models: expected a name of timm.list_models(), such as resnet50.a1_in1k; got {name!r}"
        )
    with _explain_failed_download(f"timm:{name}"):
        model = timm.create_model(name, pretrained=weights is None)
    config = data.resolve_model_data_config(model)
    return model, data.create_transform(**config, is_training=False)


def _open_from_function(module: str, function: str) -> tuple[Any, Any]:
    """Return the network and preprocessing that a function of the user returns."""
    import torch

    spec = f"{module}:{function}"
    with _import_from_here():
        try:
            found: Any = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
                raise
            raise ValueError(
                f"models: expected a module that Python can import, or a file {module}.py here, for "
                f"{spec!r}; found no {error.name!r}"
            ) from error
    call = getattr(found, function, None)
    if not callable(call):
        raise ValueError(f"models: expected a function {function!r} in {module!r}; found none")
    made = call()
    if not (isinstance(made, tuple) and len(made) == 2):
        raise ValueError(
            f"models: expected {spec} to return a network and its preprocessing; got {type(made).__name__}"
        )
    model, preprocess = made
    if not isinstance(model, torch.nn.Module) or not callable(preprocess):
        raise ValueError(
            f"models: expected {spec} to return a torch.nn.Module and a callable; got "
            f"{type(model).__name__} and {type(preprocess).__name__}"
        )
    return model, preprocess


def load_weights(model: Any, path: Path, spec: str) -> None:
    """Load the parameters in a file into a network, without running code from the file."""
    given = _read_state_dict(path)
    own = model.state_dict()
    # Many published files are older than the batch counters, which evaluation does not use.
    missing = [n for n in own if n not in given and not n.endswith("num_batches_tracked")]
    unknown = [n for n in given if n not in own]
    if missing or unknown:
        first = f"no {missing[0]!r}" if missing else f"{unknown[0]!r} besides"
        raise ValueError(
            f"{path}: expected the {len(own)} tensors of {spec}, got {len(given)}, {first}: pass the file "
            "that belongs to this network"
        )
    shapes = [n for n in given if own[n].shape != given[n].shape]
    if shapes:
        name = shapes[0]
        raise ValueError(
            f"{path}: expected {name!r} of shape {tuple(own[name].shape)} for {spec}, got "
            f"{tuple(given[name].shape)}"
        )
    model.load_state_dict(given, strict=False)


def _read_state_dict(path: Path) -> dict[str, Any]:
    """Return the tensors in a file by name."""
    import pickle

    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not path.is_file():
        raise ValueError(f"{path}: expected a file of weights, found none")
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except SafetensorError as error:
            raise ValueError(f"{path}: expected a safetensors file: {error}") from error
    try:
        found: Any = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{path}: expected only tensors, got a file that would run code when read, or that is not from "
            "PyTorch: save model.state_dict(), or a safetensors file"
        ) from error
    except (RuntimeError, EOFError, ValueError, KeyError) as error:
        raise ValueError(f"{path}: expected a file of torch.save or safetensors: {error}") from error
    for name in ("state_dict", "model"):  # where checkpoints of training scripts have them
        if isinstance(found, Mapping) and isinstance(found.get(name), Mapping):
            found = found[name]
    if not isinstance(found, Mapping) or not all(isinstance(each, torch.Tensor) for each in found.values()):
        raise ValueError(f"{path}: expected tensors by name, a state dict; got {type(found).__name__}")
    # DataParallel puts this prefix before every name.
    return {str(name).removeprefix("module."): tensor for name, tensor in found.items()}


def _describe_preprocessing(preprocess: Any) -> str:
    """Return the representation of a preprocessing on one line, or its type if it has none of its own."""
    kind = type(preprocess)
    if kind.__repr__ is object.__repr__ or kind.__module__ == "builtins" or kind.__module__ == "functools":
        return kind.__qualname__
    return " ".join(re.sub(r" at 0x[0-9a-f]+", "", repr(preprocess)).split())


@contextlib.contextmanager
def _explain_failed_download(spec: str) -> Iterator[None]:
    """Turn the errors of a failed download into a `ValueError` of one line."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        said = " ".join(str(error).split())[:200]
        raise ValueError(
            f"models: expected to download the weights of {spec}, got: {said}: fetch the file elsewhere and "
            "give it as weights"
        ) from error


@contextlib.contextmanager
def _import_from_here() -> Iterator[None]:
    """Allow imports from the working directory, after all other places."""
    here = os.getcwd()
    added = here not in sys.path
    if added:
        sys.path.append(here)
    try:
        yield
    finally:
        if added and here in sys.path:
            sys.path.remove(here)


def _import_optional(package: str) -> Any:
    """Return an optional package; raise a `ValueError` if it is not installed."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ValueError(f"models: expected {package}, found none: pip install {package}") from error
    except RuntimeError as error:  # raised by torchvision if it was built for another PyTorch
        raise ValueError(
            f"models: expected {package}, found one that does not fit this PyTorch: {error}"
        ) from error


def _require_torch() -> None:
    """Raise a `ValueError` if PyTorch is not installed."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise ValueError(
            "expected PyTorch, which runs the networks, found none: pip install 'demur[torch]'"
        ) from error
