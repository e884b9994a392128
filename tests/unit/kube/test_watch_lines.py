"""Lines from chunks."""

from collections.abc import AsyncIterator, Iterable

import pytest

from recovery.kube.watch_lines import split_lines


async def chunks(parts: Iterable[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


TEXT = b'{"a":1}\n\n{"bb":22}\n{"cut'


@pytest.mark.parametrize("size", range(1, len(TEXT) + 1))
async def test_lines_do_not_depend_on_where_chunks_end(size: int) -> None:
    cut = [TEXT[start : start + size] for start in range(0, len(TEXT), size)]
    assert [line async for line in split_lines(chunks(cut))] == [b'{"a":1}', b"", b'{"bb":22}']


async def test_a_line_may_be_of_any_length() -> None:
    parts = [b"x" * 65536] * 48 + [b"\ny\n"]
    assert [len(line) async for line in split_lines(chunks(parts))] == [48 * 65536, 1]
