"""Secrets are hidden by the names they have; everything else stays readable."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufleet import masking
from gpufleet.masking import CHANGED, HIDDEN


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "VLLM_API_KEY", "api-key", "api-keys", "DB_PASSWORD", "my.secret", "KEY", "credentials", "PGPASSWORD"],
)
def test_names_of_secrets(name: str) -> None:
    assert masking.is_secret(name)


@pytest.mark.parametrize(
    "name", ["tokenizer", "TOKENIZERS_PARALLELISM", "max-num-batched-tokens", "monkey", "eos_token"]
)
def test_names_of_no_secrets(name: str) -> None:
    assert not masking.is_secret(name, anywhere=True)


def test_a_variable_counts_by_any_part_of_its_name() -> None:
    assert masking.is_secret("AWS_KEY_ID", anywhere=True) and not masking.is_secret("AWS_KEY_ID")


def test_a_name_that_ends_so_in_a_line_of_a_log() -> None:
    assert masking.text("env PGPASSWORD=hunter2 is set") == f"env PGPASSWORD={HIDDEN} is set"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ('HF_TOKEN="abc"', f"HF_TOKEN={HIDDEN}"),
        ("export MY_KEY=abc def", f"export MY_KEY={HIDDEN}"),
        ('Environment="HF_TOKEN=abc"', f'Environment="HF_TOKEN={HIDDEN}'),
        ('HF_TOKEN="a\\"bc\nd"\nA="1"', f'HF_TOKEN={HIDDEN}\nA="1"'),
        ("api-key: abc", f"api-key: {HIDDEN}"),
        ("api-key:\n- abc\n- def\nport: 8000", f"api-key:\n{HIDDEN}\nport: 8000"),
        ('more: \'{"api_key": "abc", "n": 1}\'', f'more: \'{{"api_key": {HIDDEN}, "n": 1}}\''),
        (
            'X="/x/lmdeploy" "--api-keys" "abc" "def" "--port" "1"',
            f'X="/x/lmdeploy" "--api-keys" {HIDDEN} "--port" "1"',
        ),
        ("port: 8000", "port: 8000"),
        ('TOKENIZERS_PARALLELISM="false"', 'TOKENIZERS_PARALLELISM="false"'),
        ('HF_TOKEN=""', 'HF_TOKEN=""'),
    ],
)
def test_a_file_of_a_release(line: str, shown: str) -> None:
    assert masking.pair(line, line) == (shown, shown)


def test_a_secret_that_changes_is_said_to_without_its_value() -> None:
    before, after = masking.pair('A="1"\nHF_TOKEN="old"\n', 'A="1"\nHF_TOKEN="new"\nMY_KEY="k"\n')
    assert "old" not in before and HIDDEN in before
    assert "new" not in after and CHANGED in after.splitlines()[1]
    assert CHANGED not in after.splitlines()[2] and HIDDEN in after.splitlines()[2]


@pytest.mark.parametrize(
    "line",
    [
        "INFO non-default args: {'api_key': ['abcabcabc'], 'port': 8000}",
        "Namespace(api_key='abcabcabc', port=8000)",
        "vllm serve /m --api-key abcabcabc --port 8000",
        "vllm serve /m --api-key=abcabcabc --port 8000",
        "got HF_TOKEN=abcabcabc from the environment, port 8000",
        "Authorization: Bearer abcabcabc on port 8000",
        "token hf_abcabcabcabcabcabcabc is invalid on port 8000",
    ],
)
def test_a_line_of_a_log(line: str) -> None:
    shown = masking.text(line)
    assert "abcabcabc" not in shown and HIDDEN in shown and "port" in shown and "8000" in shown


@pytest.mark.parametrize(
    "line",
    [
        "INFO 11-29 GPU KV cache size: 12,345 tokens, eos_token='</s>', max_tokens=16",
        "the key: is in the door; the last token: x",
        "Avg generation throughput: 38.5 tokens/s, Running: 2 reqs",
    ],
)
def test_a_line_without_secrets_stays(line: str) -> None:
    assert masking.text(line) == line


# Without a letter of the mark, so that none is a part of it.
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="i"), min_size=6, max_size=30).filter(str.strip)


@given(st.lists(TEXT, min_size=1, max_size=4), st.text(), st.text())
def test_no_secret_stays_in_any_text(secrets: list[str], before: str, after: str) -> None:
    value = {"a": [before + "".join(secrets) + after, {"b": (1, None, True, secrets[0])}]}
    found = masking.document(value, secrets)
    assert all(secret not in found["a"][1]["b"][3] for secret in secrets)
    if not any(secret in before or secret in after for secret in secrets):
        assert secrets[0] not in found["a"][0] or secrets[0] in (before + HIDDEN + after)


def test_short_ones_are_hidden_as_words_of_their_own() -> None:
    assert masking.document("any company, with `any`", ["any"]) == f"{HIDDEN} company, with `{HIDDEN}`"
    assert masking.document("port=1 of 12", ["1"]) == f"port={HIDDEN} of 12"
    assert masking.document("see http://anna:pw@host/x", []) == f"see http://{HIDDEN}@host/x"
    assert masking.document("-----BEGIN\nabcdef\n", ["abcdef\nghijkl"]) == f"-----BEGIN\n{HIDDEN}\n"
