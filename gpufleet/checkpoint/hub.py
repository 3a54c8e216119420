"""A checkpoint in a repository of the hub, by the hub's own client: its list of files, their sha256, parts of them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gpufleet.errors import ConfigError
from gpufleet.hub_child import clean
from gpufleet.models import File, Source
from gpufleet.schema import read
from gpufleet.wheelhouse.hub import HUB, checked
from gpufleet.wheelhouse.items import FetchError
from gpufleet.wheelhouse.web import without_login

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo

SMALL = 64 << 20  # bytes; the hub keeps files of more than 10 MB as large ones
LOG_IN = "give a token: HF_TOKEN, or hf auth login"
OTHER = "ask another mirror"
REMEDIES = {401: LOG_IN, 403: LOG_IN, 404: "correct the name, or set mirrors.hub to where it is"}


class Hub:
    """One state of a repository. The token is the hub client's: HF_TOKEN, or what `hf auth login` kept."""

    def __init__(self, repo: str, wanted: str | None = None, endpoint: str = HUB) -> None:
        """
        + wanted: a branch, a tag or a commit; None: the default branch
        + endpoint: the hub, or a mirror of it
        """
        self.repo, self._wanted, self.endpoint = repo, wanted, checked(endpoint)
        self._shown = without_login(endpoint)
        self.where = repo + (f"@{wanted}" if wanted else "")

    @cached_property
    def _info(self) -> ModelInfo:
        from huggingface_hub import HfApi

        with self._failures():
            return HfApi(endpoint=self.endpoint, library_name="gpufleet").model_info(
                self.repo, revision=self._wanted, files_metadata=True
            )

    @property
    def commit(self) -> str:
        found = self._info.sha
        if not isinstance(found, str) or not re.fullmatch(r"[0-9a-f]{40}", found):
            raise FetchError(f"{self.where}: {self._shown} does not say which commit it is; ask another mirror")
        return found

    @cached_property
    def _siblings(self) -> dict[str, Any]:
        found = {sibling.rfilename: sibling for sibling in self._info.siblings or []}
        for name, sibling in found.items():
            if not isinstance(name, str) or not isinstance(sibling.size, int | None) or (sibling.size or 0) < 0:
                raise FetchError(f"{self.where}: {self._shown} has no list of files as the hub has it; {OTHER}")
        return found

    def sizes(self) -> Mapping[str, int]:
        unsaid = [name for name, sibling in self._siblings.items() if sibling.size is None]
        if unsaid:
            raise FetchError(f"{self.where}: {self._shown} does not say how long {unsaid[0]} is; ask another mirror")
        return {name: int(sibling.size) for name, sibling in self._siblings.items()}

    def part(self, name: str, start: int, end: int) -> bytes:
        from huggingface_hub import hf_hub_url

        utils = _module("utils")
        if end <= start:
            return b""
        url = hf_hub_url(self.repo, name, revision=self.commit, endpoint=self.endpoint)
        headers = utils.build_hf_headers(library_name="gpufleet") | {"Range": f"bytes={start}-{end - 1}"}
        with self._failures():
            answer = utils.http_backoff("GET", url, headers=headers, follow_redirects=True)
            utils.hf_raise_for_status(answer)
        found = bytes(answer.content)
        return found if answer.status_code == 206 else found[start:end]

    def hashed(self, names: list[str], say: Callable[[str], None]) -> dict[str, File]:
        """Large files as the hub's list has them; small ones are read, and checked by their git blob id."""
        sizes = self.sizes()
        small = [name for name in names if self._siblings[name].lfs is None]
        if small:
            say(f"reading {len(small)} small files for their sha256")
        return {name: self._small(name, sizes[name]) if name in small else self._large(name) for name in names}

    def _large(self, name: str) -> File:
        lfs = self._siblings[name].lfs
        return read(File, {"size": lfs.size, "sha256": lfs.sha256}, f"{self.where}: {name}")

    def _small(self, name: str, size: int) -> File:
        if size > SMALL:
            raise FetchError(f"{self.where}: {self._shown} does not say which sha256 {name} has; {OTHER}")
        data, blob = self.part(name, 0, size), self._siblings[name].blob_id
        found = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
        if len(data) != size or (blob and blob != found):
            raise FetchError(f"{self.where}: {name} came damaged from {self._shown}; call it again")
        return File(size=size, sha256=hashlib.sha256(data).hexdigest())

    def source(self, files: dict[str, File]) -> Source:
        given = {name: file.model_dump() for name, file in files.items()}
        return read(Source, {"hub": self.repo, "commit": self.commit, "files": given}, "the page")

    def revision(self, files: dict[str, File]) -> str:
        return self.commit[:12]

    @property
    def title(self) -> str:
        return self.repo

    def name(self) -> str:
        return self.repo.rpartition("/")[2]

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """What the hub's client raises, in one line with what to do."""
        errors = _module("errors")
        try:
            yield
        except errors.OfflineModeIsEnabled:
            raise ConfigError(
                ["HF_HUB_OFFLINE is set, so the hub is not asked: take it out of the environment"]
            ) from None
        except errors.GatedRepoError:
            raise FetchError(f"{self.where} is gated: accept its terms at {HUB}/{self.repo}, and {LOG_IN}") from None
        except errors.RevisionNotFoundError:
            raise ConfigError([f"{self.repo} has no revision {self._wanted}; its page on the hub lists them"]) from None
        except errors.RepositoryNotFoundError:
            problem = f"{self._shown} has no repository {self.repo}, or it is private"
            raise ConfigError([f"{problem}: correct the name, or {LOG_IN}"]) from None
        except errors.HFValidationError as error:
            raise ConfigError([f"{self.where} is no repository: {' '.join(str(error).split())}"]) from None
        except errors.HfHubHTTPError as error:
            status = error.response.status_code
            remedy = REMEDIES.get(status, "call it again later, or set mirrors.hub to a mirror")
            raise FetchError(f"{self.where}: {self._shown} answered {status}; {remedy}") from None
        except (OSError, errors.HTTPError) as error:
            remedy = "mend the network, or set mirrors.hub to a mirror"
            raise FetchError(f"{self.where}: {self._shown} cannot be reached ({clean(str(error))}); {remedy}") from None
        except UnicodeEncodeError:  # before anything is asked: headers are ASCII
            raise ConfigError(
                [f"{self.where}: HF_TOKEN or HF_ENDPOINT has letters that none has: copy it anew"]
            ) from None
        except Exception as error:  # what the client raises of answers that no hub gives: ValueError, KeyError …
            problem = f"{self._shown} does not answer as a hub does ({type(error).__name__}: {clean(str(error))})"
            raise FetchError(f"{self.where}: {problem}; correct its address, or ask another mirror") from None


def _module(name: str) -> Any:
    """A module of the hub's client, whose names it lists nowhere that a type checker looks."""
    return import_module(f"huggingface_hub.{name}")
