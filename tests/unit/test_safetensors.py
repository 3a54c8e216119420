"""Headers of safetensors files: what they tell, and every way in which a file can be damaged."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostkit.errors import Failure
from hostkit.safetensors import LENGTH, header

TENSORS: dict[str, Any] = {
    "b": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
    "a": {"dtype": "F4", "shape": [3], "data_offsets": [12, 14]},
    "scalar": {"dtype": "I64", "shape": [], "data_offsets": [14, 22]},
    "new": {"dtype": "F5_NEW", "shape": [7], "data_offsets": [22, 27]},
    "empty": {"dtype": "F32", "shape": [0, 4], "data_offsets": [27, 27]},
}


def content(tensors: Any, data: int = 27, meta: bool = True) -> bytes:
    text = json.dumps(({"__metadata__": {"format": "pt"}} if meta else {}) | tensors).encode()
    return len(text).to_bytes(LENGTH, "little") + text + bytes(data)


def put(folder: Path, data: bytes) -> str:
    path = folder / "model.safetensors"
    path.write_bytes(data)
    return str(path)


def with_(name: str, **changes: Any) -> dict[str, Any]:
    return TENSORS | {name: TENSORS[name] | changes}


def test_the_tensors_of_a_file(tmp_path: Path) -> None:
    assert header(put(tmp_path, content(TENSORS))) == TENSORS
    assert header(put(tmp_path, content({}, 0, meta=False))) == {}


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"", "is truncated: 0 bytes"),
        (b"\x01\0\0", "is truncated: 3 bytes"),
        (content(TENSORS)[:40], "is truncated: its header alone ends at byte"),
        (content(TENSORS)[:-1], "is truncated: it has"),
        (content(TENSORS) + b"x", "is damaged: it has"),
        (b"version https://git-lfs.github.com/spec/v1\n", "its header cannot be found"),
        (content(TENSORS).replace(b"dtype", b"dty\xffe", 1), "header cannot be read"),
        (content({"b": []}), "header cannot be read"),
        (content(with_("b", data_offsets=[0])), "header cannot be read"),
        (content(with_("b", data_offsets=[0, 12.0])), "tensor b lies at 0 to 12.0"),
        (content(with_("b", shape=[2, 4])), r"tensor b of BF16 \[2, 4\] cannot take 12 bytes"),
        (content(with_("b", shape=[-2, -3])), r"tensor b has shape"),
        (content(with_("a", data_offsets=[13, 15])), "tensor a lies at 13 to 15, and has to begin at 12"),
        (content(with_("a", data_offsets=[11, 13])), "tensor a lies at 11 to 13"),
    ],
)
def test_a_damaged_file_is_said_to_be_one(tmp_path: Path, data: bytes, cause: str) -> None:
    path = put(tmp_path, data)
    with pytest.raises(Failure, match=cause) as raised:
        header(path)
    assert raised.value.cause.startswith(path) and raised.value.remedy == "fetch it again"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="cannot be read: No such file"):
        header(str(tmp_path / "none.safetensors"))


@given(st.binary(max_size=40), st.integers(0, 60))
def test_no_bytes_make_it_fail_otherwise(tmp_path_factory: pytest.TempPathFactory, junk: bytes, at: int) -> None:
    whole = bytearray(content(TENSORS))
    whole[at : at + len(junk)] = junk
    path = put(tmp_path_factory.mktemp("junk"), bytes(whole))
    with suppress(Failure):
        assert isinstance(header(path), dict)
