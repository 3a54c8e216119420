"""Who is named gets a stand-in; what a reader of a log needs stays."""

from __future__ import annotations

import hashlib
import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufleet import anonymity_forms as forms
from gpufleet.anonymity_text import Disguise
from gpufleet.masking import HIDDEN
from tests.unit.planted import Planted


def disguised(*lines: str) -> list[str]:
    disguise = Disguise()
    for line in lines:
        disguise.learn(line)
    return [disguise.text(line) for line in lines]


@pytest.mark.parametrize("kind", sorted(Planted(7).all()))
def test_each_kind_is_taken_out_of_lines(kind: str) -> None:
    planted = Planted(7)
    disguise = Disguise()
    disguise.know("person", planted.person)  # which only the box can tell
    lines = [*planted.lines(), f"of {planted.person}."]
    assert any(planted.all()[kind].lower() in line.lower() for line in lines)
    disguise.learn(lines)
    shown = "\n".join(disguise.text(line) for line in lines).lower()
    assert planted.all()[kind].lower() not in shown


@pytest.mark.parametrize(
    "line",
    [
        "INFO 11-30 10:00:00 [core.py:58] Initializing a V1 LLM engine (v0.27.1) with config: tensor_parallel_size=2",
        "[rank0]: File torch/nn/functional.py, line 12, in linear; at::native, aten::add, c10::Error, std::vector",
        "NVRM: Xid (PCI:0000:17:00): 79, pid=1234, GPU has fallen off the bus; bus 00000000:17:00.0",
        "flash_fwd_splitkv_kernel_sm80_hdim128_bf16, Qwen3_5MoeForConditionalGeneration, _ZN2at6native29vectorizedE4",
        "Uvicorn running on http://0.0.0.0:8000, http://127.0.0.1:8000/v1, [::1]:8000",
        "Started getty@tty1.service; pip install git+https://github.com/vllm-project/vllm@v0.27.1",
        "https://huggingface.co/Qwen/Qwen3-0.6B/resolve/main/config.json",
        "GPU KV cache size: 123,456 tokens; 38.5 tok/s; driver 580.159.03; kernel 6.1.0-41-amd64; 2026-11-30T10:00:00Z",
        "runtime vllm-0.27.1-sm75-0123456789ab of /opt/gpufleet/runtimes, max_model_len=100000",
    ],
)
def test_what_a_reader_needs_stays(line: str) -> None:
    assert disguised(line) == [line]


def test_the_same_is_the_same_everywhere() -> None:
    first, second, third = disguised(
        "anneliese@kellerbox1 from 10.9.8.7", "/home/anneliese/x on KELLERBOX1", "10.9.8.7, 10.9.8.6, anneliese"
    )
    assert first == "user-1@host-1 from address-1"
    assert second == "/home/user-1/x on host-1"
    assert third == "address-1, address-2, user-1"


def test_names_of_one_thing_have_one_stand_in_and_end_where_words_do() -> None:
    disguise = Disguise()
    assert disguise.know("box", "turing-1", "kellerbox") == "box-1"
    assert disguise.know("box", "turing-10") == "box-2"
    text = "turing-1:8000 turing-10 log_turing-1 KellerBox.corp.example Kellerboxes turing-1.json"
    assert disguise.text(text) == "box-1:8000 box-2 log_box-1 box-1 Kellerboxes box-1.json"


def test_a_name_that_is_a_part_of_our_own_keys_does_not_change_them() -> None:
    disguise = Disguise(["tokens_per_second"])
    disguise.know("box", "second")
    page = {"tokens_per_second": 41.5, "boxes": {"second": "second, on second:8000"}}
    assert disguise.document(page) == {"tokens_per_second": 41.5, "boxes": {"box-1": "box-1, on box-1:8000"}}
    assert disguise.left('{"tokens_per_second": 41.5}') == []


def test_names_that_everybody_has_stay() -> None:
    disguise = Disguise()
    for name in ("root", "ubuntu", "gpufleet", "server", "localhost"):
        disguise.know("user", name)
    disguise.learn("root@localhost, /home/ubuntu/x")
    line = "root ran the server as gpufleet in /home/ubuntu on localhost"
    assert disguise.text(line) == line


def test_a_secret_is_hidden_in_every_spelling_and_by_its_hash() -> None:
    disguise = Disguise()
    disguise.secret("geheim und/lang")
    hashed = hashlib.sha1(b"geheim und/lang").hexdigest()
    line = f"a geheim und/lang b geheim%20und%2Flang c {hashed} d Z2VoZWltIHVuZC9sYW5n"
    shown = disguise.text(line)
    assert shown == f"a {HIDDEN} b {HIDDEN} c hash-1 d {HIDDEN}"
    assert disguise.left(line) and not disguise.left(shown)


@pytest.mark.parametrize("name", ["api_key", "aws_secret_access_key", "azure-account-key", "PGPASSWORD", "auth_key"])
def test_what_stands_without_quotes_after_the_name_of_a_secret_is_hidden(name: str) -> None:
    assert Disguise().text(f"loaded {name}: wJalr/XUtn beside it") == f"loaded {name}: {HIDDEN} beside it"
    assert Disguise().text(f"{name}: none") == f"{name}: none"


def test_json_is_disguised_in_keys_and_values_and_hidden_by_names() -> None:
    disguise = Disguise()
    disguise.know("box", "kellerbox")
    page = {
        "boxes": {"kellerbox": {"who": "anneliese", "host": "tischrechner", "n": 3, "on": True}},
        "env": {"MY_API_KEY": "abc", "OMP_NUM_THREADS": "8"},
        "packages": {"libcudnn9": "9.13.0.50-1"},
        "said": "9.13.0.50 by anneliese of tischrechner",
        "password": 123456,
    }
    disguise.learn(page)
    assert disguise.document(page) == {
        "boxes": {"box-1": {"who": "user-1", "host": "host-1", "n": 3, "on": True}},
        "env": {"MY_API_KEY": HIDDEN, "OMP_NUM_THREADS": "8"},
        "packages": {"libcudnn9": "9.13.0.50-1"},
        "said": "address-1 by user-1 of host-1",
        "password": HIDDEN,
    }


def test_a_word_of_a_command_line_after_the_name_of_a_secret_is_hidden() -> None:
    words = ["vllm", "serve", "--api-key", "abcdef", "--port", "8000", "password:", "abcdef", "tokens", "x"]
    hidden = ["vllm", "serve", "--api-key", HIDDEN, "--port", "8000", "password:", HIDDEN, "tokens", "x"]
    assert Disguise().document(words) == hidden


def test_a_private_key_over_several_lines_goes_whole() -> None:
    key = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\nAAAA\n-----END OPENSSH PRIVATE KEY-----\nafter"
    assert disguised(key) == [f"{HIDDEN}\nafter"]
    assert disguised(key[:60]) == [HIDDEN]  # cut off


@pytest.mark.parametrize(
    ("run", "in_word", "found"),
    [
        ("fe80::1", False, ("", "fe80::1", "")),
        ("ac:fe80::1", True, ("ac:", "fe80::1", "")),
        ("2001:db8::7:8000", False, ("", "2001:db8::7:8000", "")),
        ("2001:db8::7.", False, ("", "2001:db8::7", ".")),
        ("1:2:3:4:5:6:7:8:8000", False, ("", "1:2:3:4:5:6:7:8", ":8000")),
        ("fe80::1:fe80::2", False, ("", "fe80::1:fe80", "::2")),
        ("::add", True, None),
        ("12:30:45", False, None),
    ],
)
def test_an_address_in_a_run_of_colons(run: str, in_word: bool, found: tuple[str, str, str] | None) -> None:
    assert forms.ipv6(run, in_word) == found


names = (
    st.text(string.ascii_lowercase, min_size=4, max_size=12)
    .map(lambda name: name + "qx")
    .filter(lambda name: name not in forms.COMMON)
)
octets = st.integers(0, 255)
ipv4s = st.builds(lambda *parts: ".".join(map(str, parts)), st.integers(1, 126), octets, octets, octets)
ipv6s = st.ip_addresses(v=6).map(str).filter(lambda text: forms.address(text) is not None)
macs = st.binary(min_size=6, max_size=6).map(lambda raw: raw.hex(":"))
uuids = st.uuids().map(str)
around = st.sampled_from(
    [" {} ", "({})", "[{}]", "'{}'", '"{}"', "={},", "at {}.", "x {}:8000", "<{}>", "|{}|", "{}/24"]
)


@given(
    kind=st.sampled_from(["ipv4", "ipv6", "mac", "uuid", "card"]),
    values=st.tuples(ipv4s, ipv6s, macs, uuids),
    frame=around,
)
def test_whatever_has_the_form_is_taken_out(kind: str, values: tuple[str, ...], frame: str) -> None:
    ipv4, ipv6, mac, one = values
    value = {"ipv4": ipv4, "ipv6": ipv6, "mac": mac, "uuid": one, "card": f"GPU-{one}"}[kind]
    shown = disguised(frame.format(value))[0]
    assert value not in shown and one not in shown


@given(user=names, host=names, frame=around, text=st.text(max_size=40))
def test_whoever_is_known_is_taken_out_of_any_text_and_json(user: str, host: str, frame: str, text: str) -> None:
    disguise = Disguise()
    disguise.know("user", user)
    disguise.know("host", host)
    line = f"{text} {frame.format(user)} {frame.format(host.upper())} {text}"
    page = json.loads(disguise.json({line: [line, {"said": line}]}))
    shown = json.dumps(page, ensure_ascii=False).lower()
    assert user not in shown and host not in shown
    assert disguise.left(disguise.text(line)) == []


def test_a_letter_after_a_run_belongs_to_its_last_group() -> None:
    assert forms.ipv6("c10::E", goes_on=True) is None
    assert forms.ipv6("c10::E") == ("", "c10::E", "")


@given(st.text(max_size=200))
def test_any_text_can_be_disguised(text: str) -> None:
    disguise = Disguise()
    disguise.learn(text)
    assert not set("\ue000\ue001") & set(disguise.text(text))


places = st.sampled_from(
    ["{0}@{1}", "/home/{0}/x", "https://{1}/y", "serial: {0}", "{2}", "{3}", "for {0} from {2} port 5"]
)


@given(st.lists(st.builds(lambda *parts: parts[0].format(*parts[1:]), places, names, names, ipv4s, uuids), max_size=6))
def test_a_stand_in_has_none_itself(lines: list[str]) -> None:
    disguise = Disguise()
    disguise.learn("\n".join(lines))
    once = disguise.text("\n".join(lines))
    assert disguise.text(once) == once


def test_who_is_called_as_a_host_is_has_one_stand_in() -> None:
    assert disguised("A@A, /home/A, A@B")[0] == "user-1@user-1, /home/user-1, user-1@host-1"
