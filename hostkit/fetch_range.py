"""Stretches of a file by range: what it lacks, from a server that may break off."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from typing import Callable, Iterator

from hostkit import fetch
from hostkit.errors import Failure


def fetch_range(
    url: str,
    start: int,
    length: int,
    take: Callable[[bytes], None],
    open_url: fetch.Open = fetch.plain_open,
    tries: int = fetch.TRIES,
) -> None:
    """Hand the bytes [start, start + length) of `url` to `take`, in order, however often the connection breaks off.

    Raises Failure after `tries` in a row that bring less than fetch.GAIN.
    """
    done, failed, reason = 0, 0, "no answer"
    while failed < tries:
        if failed:
            time.sleep(min(2 ** (failed - 1), 10))
        before = done
        arriving = stretch(url, start + done, length - done, open_url)
        while done < length:
            try:
                block = next(arriving)
            except StopIteration:
                reason = "the connection ended after {} of {} bytes".format(done, length)
                break
            except urllib.error.HTTPError as error:
                if 400 <= error.code < 500 and error.code not in fetch.LATER:
                    raise Failure("{} answers {}".format(url, error.code), "check the address and the mirrors setting")
                reason = str(error)
                break
            except fetch.UNFETCHED as error:
                reason = str(error) or repr(error)
                break
            take(block)  # not among what is caught above: a full disk is none of the network's errors
            done += len(block)
        if done == length:
            return
        failed = 0 if done >= before + fetch.GAIN else failed + 1
    raise Failure(
        "cannot fetch {}: {}".format(url, reason),
        "check the network and the mirrors setting; what came is kept, and the next run goes on with it",
    )


def stretch(url: str, start: int, length: int, open_url: fetch.Open) -> Iterator[bytes]:
    """One try. Of a server that knows no ranges everything before is read, and dropped."""
    request = urllib.request.Request(url, headers={"Range": "bytes={}-{}".format(start, start + length - 1)})
    with open_url(request) as answer:
        told = fetch.said(answer.headers, r"bytes (\d+)-")
        if answer.status == 206 and told not in (None, start):
            raise OSError("the server sends another range than it was asked for")
        before = 0 if answer.status == 206 else start
        for block in iter(lambda: answer.read1(1 << 20), b""):
            fresh = block[before:]
            before -= len(block) - len(fresh)
            if fresh:
                yield fresh[:length]
                length -= min(length, len(fresh))
            if not length:
                return
