"""What the engines call the things that the plan itself sets."""

from __future__ import annotations

from dataclasses import dataclass

from gpufleet.recipe import Engine


@dataclass(frozen=True)
class Dialect:
    """The names of an engine's flags, without dashes. None: it has no such flag."""

    host: str
    port: str
    served_name: str
    tensor_parallel: str
    max_num_seqs: str
    max_model_len: str
    speculative: str | None  # a mapping with num_speculative_tokens
    compilation: str | None  # a mapping with cudagraph_capture_sizes
    several_names: bool  # whether it answers to a list of served names
    chat_template: str | None  # the path of a Jinja template


# `vllm serve --help=all` of 0.24.0 and 0.27.1; `lmdeploy serve api_server --help` of 0.18.0
DIALECTS: dict[Engine, Dialect] = {
    "vllm": Dialect(
        host="host",
        port="port",
        served_name="served-model-name",
        tensor_parallel="tensor-parallel-size",
        max_num_seqs="max-num-seqs",
        max_model_len="max-model-len",
        speculative="speculative-config",
        compilation="compilation-config",
        several_names=True,
        chat_template="chat-template",
    ),
    "lmdeploy": Dialect(
        host="server-name",
        port="server-port",
        served_name="model-name",
        tensor_parallel="tp",
        max_num_seqs="max-batch-size",
        max_model_len="session-len",
        speculative=None,
        compilation=None,
        several_names=False,
        chat_template=None,  # its `chat-template` is a name or a JSON file of another form
    ),
}
