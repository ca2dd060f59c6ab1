"""Pretrained networks by name: of torchvision, of timm, or of a function of the user's own."""

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

_FORMS = (
    "a name of torchvision or timm, as efficientnet_v2_s, torchvision:resnet50 or timm:resnet50.a1_in1k, or "
    "module:function that returns a network and its preprocessing"
)


@dataclass(frozen=True)
class Network:
    """A network with the way that images go into it.

    Attributes
    ----------
    name
        Short, fit for a file's name.
    model
        A ``torch.nn.Module``.
    preprocess
        From an image of pillow to a float tensor (3, height, width).
    input
        What the preprocessing says of itself.
    fingerprint
        Digits that change with the layers, with any number in them, and with the preprocessing; not with the
        versions of libraries.
    """

    name: str
    model: Any
    preprocess: Callable[[Any], Any]
    input: str
    fingerprint: str


def open_network(spec: str, weights: str | os.PathLike[str] | None = None) -> Network:
    """Open a network.

    Parameters
    ----------
    spec
        "torchvision:NAME" or "timm:NAME" where these are installed; the bare name is looked for in the one
        and then in the other. A tag behind a dot chooses among published weights: "resnet50.IMAGENET1K_V1" of
        torchvision, "resnet50.a1_in1k" of timm; without it they are the library's default. Preprocessing is
        that of those weights. Or "module:function": the function takes nothing and returns the network and
        its preprocessing, from an image of pillow to a float tensor (3, height, width).
    weights
        A file of parameters, safetensors or ``torch.save`` of a state dict, which is read without running
        code from it. None: the published ones, which torchvision and timm download at first use; or those
        that the function has put in.
    """
    _check_torch()
    source, colon, rest = spec.partition(":")
    if not spec or (colon and not rest):
        raise ValueError(f"models: expected {_FORMS}; got {spec!r}")
    if source == "torchvision" and colon:
        model, preprocess = _from_torchvision(rest, weights)
    elif source == "timm" and colon:
        model, preprocess = _from_timm(rest, weights)
    elif colon:
        model, preprocess = _from_function(source, rest)
    else:
        model, preprocess = _from_either(spec, weights)
    if weights is not None:
        load_weights(model, Path(weights), spec)
    input = _described(preprocess)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", rest if colon else spec)
    code = input if input != type(preprocess).__qualname__ else describe_code(preprocess)
    return Network(name, model, preprocess, input, fingerprint(model, code))


def _from_either(name: str, weights: Any) -> tuple[Any, Any]:
    """Return a network that torchvision or timm has."""
    tried = []
    for library, opener in (("torchvision", _from_torchvision), ("timm", _from_timm)):
        try:
            found = _imported(library)
        except ValueError as error:
            tried.append(str(error).removeprefix("models: expected "))
            continue
        if _has_name(library, found, name):
            return opener(name, weights)
        tried.append(f"{library} has no such name")
    raise ValueError(f"models: expected {_FORMS}; got {name!r} ({'; '.join(tried)})")


def _has_name(library: str, module: Any, name: str) -> bool:
    """Tell whether a library knows a network."""
    if library == "timm":
        return bool(module.is_model(name))
    models: Any = importlib.import_module("torchvision.models")
    plain, _, tag = name.partition(".")
    # Names with tags of timm's, as resnet50.a1_in1k, begin with names of torchvision's.
    return plain in models.list_models() and (not tag or tag in models.get_model_weights(plain).__members__)


def _from_torchvision(name: str, weights: Any) -> tuple[Any, Any]:
    """Return a network of torchvision with the preprocessing of its published weights."""
    _imported("torchvision")
    models: Any = importlib.import_module("torchvision.models")
    plain, _, tag = name.partition(".")
    if plain not in models.list_models():
        raise ValueError(
            f"models: expected a name of torchvision.models.list_models(), as efficientnet_v2_s; got {name!r}"
        )
    published = models.get_model_weights(plain)
    if (tag or "DEFAULT") not in published.__members__:
        tags = ", ".join(each for each in published.__members__ if each != "DEFAULT")
        raise ValueError(
            f"models: expected weights of torchvision's {plain} among {tags or 'none'}; got {name!r}"
        )
    chosen = published[tag or "DEFAULT"]
    if weights is None:
        with _downloading(f"torchvision:{name}"):
            return models.get_model(plain, weights=chosen), chosen.transforms()
    model = models.get_model(plain, weights=None)
    # Inception and GoogLeNet change their inputs where weights are published ones, as these are.
    if hasattr(model, "transform_input"):
        model.transform_input = True
    return model, chosen.transforms()


def _from_timm(name: str, weights: Any) -> tuple[Any, Any]:
    """Return a network of timm with the preprocessing that its configuration says."""
    timm = _imported("timm")
    data: Any = importlib.import_module("timm.data")
    if not name.startswith(("hf-hub:", "hf_hub:")) and not timm.is_model(name):
        raise ValueError(f"models: expected a name of timm.list_models(), as resnet50.a1_in1k; got {name!r}")
    with _downloading(f"timm:{name}"):
        model = timm.create_model(name, pretrained=weights is None)
    config = data.resolve_model_data_config(model)
    return model, data.create_transform(**config, is_training=False)


def _from_function(module: str, function: str) -> tuple[Any, Any]:
    """Return what a function of the user's own returns."""
    import torch

    spec = f"{module}:{function}"
    with _here_on_path():
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
    """Put the parameters of a file into a network; no code in it is run."""
    given = _read_state(path)
    own = model.state_dict()
    # Counters of batches came after many published files, and play no part in evaluation.
    missing = [n for n in own if n not in given and not n.endswith("num_batches_tracked")]
    unknown = [n for n in given if n not in own]
    if missing or unknown:
        first = f"no {missing[0]!r}" if missing else f"{unknown[0]!r} besides"
        raise ValueError(
            f"{path}: expected the {len(own)} tensors of {spec}, got {len(given)}, {first}: give the file "
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


def _read_state(path: Path) -> dict[str, Any]:
    """Return the tensors of a file by name."""
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
            f"{path}: expected tensors alone, got a file that would run code when it is read, or none of "
            "PyTorch: save model.state_dict(), or a safetensors file"
        ) from error
    except (RuntimeError, EOFError, ValueError, KeyError) as error:
        raise ValueError(f"{path}: expected a file of torch.save or safetensors: {error}") from error
    for name in ("state_dict", "model"):  # as checkpoints of training scripts hold them
        if isinstance(found, Mapping) and isinstance(found.get(name), Mapping):
            found = found[name]
    if not isinstance(found, Mapping) or not all(isinstance(each, torch.Tensor) for each in found.values()):
        raise ValueError(f"{path}: expected tensors by name, a state dict; got {type(found).__name__}")
    # What DataParallel puts before every name.
    return {str(name).removeprefix("module."): tensor for name, tensor in found.items()}


def _described(preprocess: Any) -> str:
    """Return what a preprocessing prints of itself, in one line; its type where that says nothing."""
    kind = type(preprocess)
    if kind.__repr__ is object.__repr__ or kind.__module__ == "builtins" or kind.__module__ == "functools":
        return kind.__qualname__
    return " ".join(re.sub(r" at 0x[0-9a-f]+", "", repr(preprocess)).split())


@contextlib.contextmanager
def _downloading(spec: str) -> Iterator[None]:
    """Make one line of what goes wrong when a library fetches weights."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        said = " ".join(str(error).split())[:200]
        raise ValueError(
            f"models: expected to download the weights of {spec}, got: {said}: fetch the file elsewhere and "
            "give it as weights"
        ) from error


@contextlib.contextmanager
def _here_on_path() -> Iterator[None]:
    """Let modules in the working folder be imported, after all others."""
    here = os.getcwd()
    added = here not in sys.path
    if added:
        sys.path.append(here)
    try:
        yield
    finally:
        if added and here in sys.path:
            sys.path.remove(here)


def _imported(package: str) -> Any:
    """Return a package that is optional."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ValueError(f"models: expected {package}, found none: pip install {package}") from error
    except RuntimeError as error:  # torchvision's, where it was built for another PyTorch
        raise ValueError(
            f"models: expected {package}, found one that does not fit this PyTorch: {error}"
        ) from error


def _check_torch() -> None:
    """Raise in one line where PyTorch is missing."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise ValueError(
            "expected PyTorch, which runs networks, found none: pip install 'demur[torch]'"
        ) from error
