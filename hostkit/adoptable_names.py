"""Under which names a server answers, asked of itself."""

from __future__ import annotations

import http.client
import json
from typing import Optional

SECONDS = 5.0
LARGEST = 1 << 20  # bytes of an answer


def read(host: str, port: int, key: Optional[str]) -> dict:
    """{"names", "root", "error"} of its /v1/models; `names` is None where it does not say.

    + key: for its `Authorization`; it is sent to this box's own server only
    """
    nothing: dict = {"names": None, "root": None}
    connection = http.client.HTTPConnection(host, port, timeout=SECONDS)
    try:
        headers = {"Authorization": "Bearer " + key} if key else {}
        connection.request("GET", "/v1/models", headers=headers)
        answer = connection.getresponse()
        body = answer.read(LARGEST)
        if answer.status != 200:
            return {**nothing, "error": "/v1/models answers with {}".format(answer.status)}
        models = [item for item in json.loads(body)["data"] if not item.get("parent")]  # a LoRA adapter has one
        names = [str(item["id"]) for item in models]
        return {"names": names, "root": next((item.get("root") for item in models), None), "error": None}
    except (OSError, http.client.HTTPException) as error:
        return {**nothing, "error": "/v1/models does not answer: {}".format(error or type(error).__name__)}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {**nothing, "error": "/v1/models answers with something else than a list of models"}
    finally:
        connection.close()
