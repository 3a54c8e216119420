"""What the stand-in says: the sum that is asked for, then the same words for ever; a call of a tool it may use."""

from __future__ import annotations

import json
import re
from typing import Any

SENTENCE = "is what this engine without a model says, and then it says the same words again, which"
WORDS = SENTENCE.split()
IMAGE_TOKENS = 64
TOKENS_OF_A_MESSAGE = 4


def prompt_tokens(body: dict[str, Any]) -> int:
    """A word is a token, each message has some of its own."""
    if "messages" not in body:
        return len(str(body.get("prompt") or "").split())
    return sum(TOKENS_OF_A_MESSAGE + _tokens(message.get("content")) for message in body["messages"])


def _tokens(content: Any) -> int:
    if isinstance(content, list):
        return sum(_tokens(part["text"]) if part.get("type") == "text" else IMAGE_TOKENS for part in content)
    return len(str(content or "").split())


def has_image(body: dict[str, Any]) -> bool:
    contents = [message.get("content") for message in body["messages"]]
    return any(part.get("type") == "image_url" for parts in contents if isinstance(parts, list) for part in parts)


def asked(body: dict[str, Any]) -> str:
    """The text of the last message."""
    content = body["messages"][-1].get("content") or ""
    if isinstance(content, list):
        return " ".join(part["text"] for part in content if part.get("type") == "text")
    return str(content)


def text(question: str, tokens: int, number: int = 0) -> str:
    """An answer of so many words, its first the sum that is asked for. + number: when not 0, it comes before all."""
    said = re.findall(r"(\d+) *\+ *(\d+)", question)
    first = str(int(said[-1][0]) + int(said[-1][1])) if said else "This"
    words = [f"{number}," if number else "", first, *(WORDS[index % len(WORDS)] for index in range(tokens))]
    return " ".join([word for word in words if word][:tokens])


def tool_call(body: dict[str, Any]) -> dict[str, Any] | None:
    """A call of the tool that must be used, or else of the first; None when there is none to be used."""
    tools = [tool["function"] for tool in body.get("tools") or []]
    choice = body.get("tool_choice", "auto")
    if not tools or choice == "none":
        return None
    wanted = choice["function"]["name"] if isinstance(choice, dict) else tools[0]["name"]
    tool = next((tool for tool in tools if tool["name"] == wanted), tools[0])
    properties = (tool.get("parameters") or {}).get("properties") or {}
    arguments = {name: _value(schema, asked(body)) for name, schema in properties.items()}
    function = {"name": tool["name"], "arguments": json.dumps(arguments)}
    return {"id": "chatcmpl-tool-0", "type": "function", "function": function}


def _value(schema: dict[str, Any], question: str) -> Any:
    """Something of the type; of a text, the last name in the question."""
    if schema.get("enum"):
        return schema["enum"][0]
    names = re.findall(r"\b[A-Z][a-z]+\b", question)
    values = {"integer": 1, "number": 1.0, "boolean": True, "array": [], "object": {}}
    return values.get(str(schema.get("type")), names[-1] if names else "something")
