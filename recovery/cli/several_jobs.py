"""One verb for several jobs: each by itself, reported in a line, and an exit code for all of them."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from recovery.cli.arguments import ServerOptions
from recovery.cli.connection import CommandError, Connection, chosen_namespace, connect, error_words
from recovery.cli.exit_codes import EXIT_FAILURE, print_error
from recovery.core.model.facts import GroupKey
from recovery.ports import ApiError, NoSuchResourceError, TryLaterError, UnauthorizedError, UntrustedServerError

T = TypeVar("T")


async def for_each_job(
    server: ServerOptions,
    namespace: str | None,
    jobs: Sequence[str],
    one: Callable[[Connection, GroupKey], Awaitable[str]],
) -> int:
    """Print what `one` says of each job, or on stderr why not; 1 if any of them failed. A name counts once."""
    code = 0
    async with connect(server) as connection:
        where = await chosen_namespace(server, namespace)
        for name in dict.fromkeys(jobs):
            key = GroupKey(where, name)
            said = await attempted(key, one(connection, key))
            if said is None:
                code = EXIT_FAILURE
            else:
                print(said, flush=True)
    return code


async def attempted(key: GroupKey, work: Awaitable[T]) -> T | None:
    """What the work gives. None: it failed, and why has been printed. What no other job would escape is raised."""
    try:
        return await work
    except CommandError as error:
        print_error(str(error))
    except (TryLaterError, UnauthorizedError, UntrustedServerError, NoSuchResourceError):
        raise
    except ApiError as error:
        print_error(f"{key}: {error_words(error)}")
    return None
