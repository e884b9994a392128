"""Finds out which pod a token belongs to. The API server says so (TokenReview); what a token says only refuses it.

The claims of a token are read without trust, so that a token for another audience costs no request. Answers are kept by
the hash of the token: a tenant's agent asks every 30 seconds with the same one.
"""

import asyncio
import base64
import binascii
import hashlib
import re
from collections import OrderedDict

import msgspec

from recovery import api_verbs
from recovery.ports import UNDECODABLE, ApiClient, Clock, Resource, TryLaterError

AUDIENCE = "recovery-agent.recovery.trainjob.dev"
TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
TOKEN_BYTES_MAX = 8 * 1024
"""A projected token has some 1,200."""
KEPT_SECONDS_MAX = 300.0
"""How long a token that was revoked may still be accepted. A deleted pod is refused at once: it is not in the cache."""
REFUSED_SECONDS = 10.0
"""How long a refusal is kept. An API server that has just started may refuse for a moment."""
KEPT_MAX = 8192
REVIEWS_AT_ONCE_MAX = 8
REVIEWS_WAITING_MAX = 64
"""More tokens than these are new at the same moment only if a client makes them up."""
REVIEW_SECONDS_MAX = 5.0

_ACCOUNT = re.compile("system:serviceaccount:([a-z0-9-]{1,63}):[a-z0-9.-]{1,253}")
_POD_NAME = "authentication.kubernetes.io/pod-name"
_POD_UID = "authentication.kubernetes.io/pod-uid"


class TokenError(Exception):
    """The token is not accepted. The message says why."""


class TokenPod(msgspec.Struct, frozen=True):
    """The pod that a token was issued for."""

    namespace: str
    name: str
    uid: str


class _Claims(msgspec.Struct, frozen=True):
    exp: float
    aud: str | list[str] = ""


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    extra: dict[str, list[str]] = {}


class _Status(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _User = _User()
    audiences: list[str] = []


class _Review(msgspec.Struct, frozen=True):
    status: _Status = _Status()


class _Kept(msgspec.Struct, frozen=True):
    pod: TokenPod | None
    """None: the token is refused."""
    until_seconds: float
    """By our monotonic clock."""


_decode_claims = msgspec.json.Decoder(_Claims).decode
_decode_review = msgspec.json.Decoder(_Review).decode


def expires_at_seconds(token: str, now_seconds: float) -> float:
    """When the token says that it expires, in seconds since the epoch. Raises TokenError if it is not for us, or over.

    The signature is not checked.
    """
    parts = token.split(".")
    if len(token) > TOKEN_BYTES_MAX or len(parts) != 3 or not token.isascii():
        raise TokenError("the token is not a JWT")
    try:
        claims = _decode_claims(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, *UNDECODABLE):
        raise TokenError("the claims of the token cannot be read") from None
    if AUDIENCE not in (claims.aud if isinstance(claims.aud, list) else [claims.aud]):
        raise TokenError(f"the token is not for the audience {AUDIENCE}")
    if not claims.exp > now_seconds:
        raise TokenError("the token has expired")
    return claims.exp


class Tokens:
    """Asks the API server about tokens, and keeps its answers."""

    def __init__(self, client: ApiClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()
        """By the hash of the token. The one that was used last comes last."""
        self._asking: dict[bytes, asyncio.Task[_Kept]] = {}
        self._at_once = asyncio.Semaphore(REVIEWS_AT_ONCE_MAX)

    async def pod(self, token: str) -> TokenPod:
        """The pod of this token. Raises TokenError, and ApiError if it is not known."""
        expires = expires_at_seconds(token, self._clock.now().timestamp())
        digest = hashlib.sha256(token.encode()).digest()
        kept = self._kept.get(digest)
        if kept is None or kept.until_seconds <= self._clock.monotonic_seconds():
            kept = await self._asked(token, digest, expires)
        if kept.pod is None:
            raise TokenError("the API server does not accept the token for a pod")
        self._kept[digest] = kept
        self._kept.move_to_end(digest)
        return kept.pod

    async def _asked(self, token: str, digest: bytes, expires: float) -> _Kept:
        """Ask the API server. Requests with the same token share one question."""
        asking = self._asking.get(digest)
        if asking is None:
            if len(self._asking) >= REVIEWS_WAITING_MAX:
                raise TryLaterError("too many tokens are new at the same moment", retry_after_seconds=1.0)
            asking = asyncio.create_task(self._review(token, expires))
            self._asking[digest] = asking
            asking.add_done_callback(lambda _: self._asking.pop(digest, None))
        kept = await asyncio.shield(asking)  # a client that disconnects must not cancel it for the others
        self._kept[digest] = kept
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return kept

    async def _review(self, token: str, expires: float) -> _Kept:
        body = {
            "apiVersion": TOKEN_REVIEWS.api_version,
            "kind": TOKEN_REVIEWS.kind,
            "spec": {"token": token, "audiences": [AUDIENCE]},
        }
        try:
            async with asyncio.timeout(REVIEW_SECONDS_MAX), self._at_once:
                answer = await api_verbs.create(self._client, TOKEN_REVIEWS, body)
        except TimeoutError:
            raise TryLaterError("the API server does not answer about a token") from None
        pod = _pod(_decode_review(answer).status)
        seconds = REFUSED_SECONDS
        if pod is not None:
            seconds = min(KEPT_SECONDS_MAX, expires - self._clock.now().timestamp())
        return _Kept(pod, self._clock.monotonic_seconds() + seconds)


def _pod(status: _Status) -> TokenPod | None:
    """None: the token is not valid, is for another audience, or is not bound to a pod."""
    account = _ACCOUNT.fullmatch(status.user.username)
    names, uids = (status.user.extra.get(key, []) for key in (_POD_NAME, _POD_UID))
    if not status.authenticated or AUDIENCE not in status.audiences or account is None:
        return None
    if len(names) != 1 or len(uids) != 1 or not uids[0]:
        return None
    return TokenPod(account.group(1), names[0], uids[0])
