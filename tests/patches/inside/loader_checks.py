"""What hostkit.head relies on: which files of a checkpoint the genuine loader reads, what AWQ takes for quantised."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import engine  # noqa: F401
from vllm.config.load import LoadConfig
from vllm.model_executor.layers.quantization.auto_awq import AutoAWQConfig
from vllm.model_executor.layers.quantization.utils.quant_utils import is_layer_skipped
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
from vllm.model_executor.model_loader.weight_utils import safetensors_weights_iterator

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from hostkit import head
from tests.unit import heads

RIGHT = {**dict.fromkeys(heads.BODY, 1.0), **dict.fromkeys(heads.NEW, 3.0)}
MTP = "model-mtp.safetensors"
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True}
FUSED = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}
MODULES = ("mtp.fc", "mtp.layers.0.self_attn.qkv_proj", "mtp.layers.0.mlp.gate", "mtp.layers.0.mlp.experts")


@contextmanager
def replaced(layout: str) -> Iterator[tuple[Path, Path]]:
    """The folder of a checkpoint with its own head, and one with the other."""
    with tempfile.TemporaryDirectory() as name:
        store = getattr(heads, layout)(Path(name) / "store")
        new = heads.head(Path(name) / "head" / MTP)
        folder = heads.links(store, Path(name) / "model")
        head.replace(str(folder), str(new))
        yield store, folder


def loaded(folder: Path) -> list[tuple[str, float]]:
    _, files, use_safetensors = DefaultModelLoader(LoadConfig())._prepare_weights(str(folder), None, None, True, None)
    assert use_safetensors
    return [(name, float(tensor.flatten()[0])) for name, tensor in safetensors_weights_iterator(files, False)]


def skipped(folder: Path, **config: object) -> list[bool]:
    """Which modules of the draft AWQ builds unquantised."""
    awq = AutoAWQConfig.from_config({**AWQ, **config})
    awq.maybe_update_config(str(folder))
    return [is_layer_skipped(it, awq.modules_to_not_convert, FUSED, skip_with_substr=True) for it in MODULES]


def check_the_loader_reads_the_new_head_alone() -> None:
    for layout in ("separate", "mixed"):
        with replaced(layout) as (_, folder):
            found = loaded(folder)
            assert len(found) == len(RIGHT) and dict(found) == RIGHT, layout


def check_an_index_alone_would_not_be_enough() -> None:
    """Of a shard that the index names for one tensor it reads all: so shards with tensors of the old head are written
    anew."""
    with replaced("mixed") as (store, folder):
        shutil.copy(folder / "model.safetensors.index.json", store)
        shutil.copy(folder / MTP, store)
        assert {name for name, _ in loaded(store)} == set(RIGHT) | set(heads.OLD)


def check_awq_leaves_the_replaced_head_as_it_is() -> None:
    """It looks at all files of the folder for what is not quantised. Experts that stand for themselves are not found,
    those in one tensor are."""
    for layout in ("separate", "mixed"):
        with replaced(layout) as (store, folder):
            assert skipped(store) == [True, True, True, False]
            assert skipped(folder) == [True, True, True, True]


def check_awq_believes_a_config_that_names_modules() -> None:
    """Then VLLM_QWOPUS_MTP_BF16_DRAFT is needed, or `mtp` among them."""
    with replaced("separate") as (_, folder):
        assert skipped(folder, modules_to_not_convert=["visual"]) == [False] * 4
        assert skipped(folder, modules_to_not_convert=["visual", "mtp"]) == [True] * 4
