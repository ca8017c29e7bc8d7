"""The delegation tokens of a cluster in its metadata store: reads, follows, creates, changes and removes them.

Every broker may do all of this. A write and its notice (`notices.py`) are one transaction. Expired tokens are invalid
at once and removed at intervals.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from hashlib import pbkdf2_hmac
from typing import TYPE_CHECKING, Final

from ottla.cluster.metadata_store import Create, Delete, NoNode, Set, StoreError, make_nodes, stop_watching
from ottla.cluster.notices import MALFORMED, Notices
from ottla.errors import BrokerError, ErrorCode
from ottla.security.credential import HASHES, ITERATIONS_MIN, credential, encode
from ottla.security.scram import TokenLogin
from ottla.security.token import CHANGE_PREFIX, CHANGES, ROOT, TOKENS, Token, decode, sign
from ottla.security.token import encode as encode_token
from ottla.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.clock import Clock
    from ottla.cluster.metadata_store import MetadataStore, Op
    from ottla.config import BrokerConfig
    from ottla.security.principal import Principal

logger = logging.getLogger("ottla.tokens")

ID_SIZE: Final = 16
SALT_SIZE: Final = 26


class TokenStore:
    def __init__(
        self,
        store: MetadataStore,
        config: BrokerConfig,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        *,
        shared: bool,
        in_charge: Callable[[], bool],
    ) -> None:
        assert config.delegation_token_secret_key is not None
        self.tokens: dict[str, Token] = {}
        self._store = store
        self._config = config
        self._key = config.delegation_token_secret_key.encode()
        self._clock = clock
        self._random_bytes = random_bytes
        self._in_charge = in_charge  # whether this broker removes old tokens
        self._ids: dict[bytes, str] = {}  # by password
        self._credentials: dict[tuple[str, str], str] = {}  # by id and mechanism, computed at the first login
        self._steps = Steps("ottla.tokens")
        self._writing = asyncio.Lock()
        self._sweeping: asyncio.Task[None] | None = None
        self._notices: Notices[str] | None = None
        if shared:  # other brokers write and follow the same store
            self._notices = Notices(
                store,
                clock,
                self._steps,
                (CHANGES,),
                what="changed tokens",
                decode=bytes.decode,
                read=self._read_some,
                read_all=self._read_all,
            )

    async def start(self) -> None:
        """Read everything, and follow changes."""
        await make_nodes(self._store, (ROOT, TOKENS, CHANGES))
        await (self._read_all() if self._notices is None else self._notices.start())
        interval_s = self._config.delegation_token_expiry_check_interval_ms / 1000
        sweeping = self._steps.every(interval_s, "removing old tokens", self.remove_old)
        self._sweeping = asyncio.get_running_loop().create_task(sweeping)

    async def _read(self, path: str) -> bytes | None:
        try:
            return (await self._store.get(path)).data
        except NoNode:
            return None

    async def _read_some(self, token_ids: Iterable[str]) -> None:
        for token_id in token_ids:
            data = await self._read(f"{TOKENS}/{token_id}") if token_id and "/" not in token_id else None
            self._put(token_id, data)

    async def _read_all(self) -> None:
        found = await self._store.tree(TOKENS)
        present = {path.rpartition("/")[2]: node.data for path, node in found.items() if path != TOKENS}
        for gone in self.tokens.keys() - present.keys():
            self._put(gone, None)
        for token_id, data in present.items():
            self._put(token_id, data)

    def _put(self, token_id: str, data: bytes | None) -> None:
        """Apply the current content of a token's node; None: the node does not exist."""
        token = None
        if data is not None:
            try:
                token = decode(data)
            except MALFORMED:
                logger.warning("a delegation token cannot be read: nobody can log in with it", extra={"id": token_id})
        if token is None or token.id != token_id:
            self._forget(token_id)
        else:
            self._keep(token)

    def _keep(self, token: Token) -> None:
        self.tokens[token.id] = token
        self._ids[sign(self._key, token.id)] = token.id

    def _forget(self, token_id: str) -> None:
        self.tokens.pop(token_id, None)
        self._ids.pop(sign(self._key, token_id), None)
        for mechanism in HASHES:
            self._credentials.pop((token_id, mechanism), None)

    async def remove_old(self) -> None:
        """Remove expired tokens. One broker does it for all."""
        if not self._in_charge():
            return
        now_ms = self._clock.now_ms()
        for token in [token for token in self.tokens.values() if token.is_over(now_ms)]:
            async with self._writing:
                if token.id in self.tokens:
                    await self._write(token, Delete(token.path))

    def password(self, token: Token) -> bytes:
        return sign(self._key, token.id)

    async def create(
        self, owner: Principal, requester: Principal, renewers: Iterable[Principal], lifetime_ms: int
    ) -> Token:
        config, now_ms = self._config, self._clock.now_ms()
        longest = config.delegation_token_max_lifetime_ms
        ends_ms = now_ms + (min(lifetime_ms, longest) if lifetime_ms > 0 else longest)
        expires_ms = min(ends_ms, now_ms + config.delegation_token_expiry_time_ms)
        token_id = base64.urlsafe_b64encode(self._random_bytes(ID_SIZE)).rstrip(b"=").decode()
        token = Token(token_id, owner, requester, tuple(renewers), now_ms, expires_ms, ends_ms)
        async with self._writing:
            await self._write(token, Create(token.path, encode_token(token)))
        return token

    async def renew(self, password: bytes, principal: Principal, period_ms: int) -> int:
        """Returns the new expiry time, in milliseconds since 1970."""
        period_ms = self._config.delegation_token_expiry_time_ms if period_ms < 0 else period_ms
        async with self._writing:
            return await self._set_end(self._find(password, principal), period_ms)

    async def expire(self, password: bytes, principal: Principal, period_ms: int) -> int:
        """Let the token expire after `period_ms`, or delete it now if that is negative. Returns the expiry time."""
        async with self._writing:
            token = self._find(password, principal)
            if period_ms >= 0:
                return await self._set_end(token, period_ms)
            await self._write(token, Delete(token.path))
            return self._clock.now_ms()

    def _find(self, password: bytes, principal: Principal) -> Token:
        token = self.tokens.get(self._ids.get(password, ""))
        if token is None:
            raise BrokerError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        if not token.may_be_changed_by(principal):
            raise BrokerError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
        return token

    async def _set_end(self, token: Token, period_ms: int) -> int:
        now_ms = self._clock.now_ms()
        if token.is_over(now_ms):
            raise BrokerError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        changed = token._replace(expires_ms=min(token.ends_ms, now_ms + period_ms))
        await self._write(changed, Set(token.path, encode_token(changed)))
        return changed.expires_ms

    async def _write(self, token: Token, op: Op) -> None:
        """Write the token and the notice for the other brokers."""
        notice = [Create(CHANGE_PREFIX, token.id.encode(), sequential=True)] if self._notices else []
        try:
            await self._store.multi([op, *notice])
        except NoNode:  # another broker has removed it
            self._forget(token.id)
            raise BrokerError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND) from None
        except StoreError as error:
            raise BrokerError(ErrorCode.REQUEST_TIMED_OUT, "the metadata store does not answer") from error
        if isinstance(op, Delete):
            self._forget(token.id)
        else:
            self._keep(token)

    def login(self, token_id: str, mechanism: str) -> TokenLogin | None:
        """What SCRAM needs to know of a token; None if it does not exist or has expired."""
        token, now_ms = self.tokens.get(token_id), self._clock.now_ms()
        if token is None or token.is_over(now_ms):
            return None
        kept = self._credentials.get((token_id, mechanism))
        if kept is None:
            word, salt = base64.b64encode(self.password(token)), self._random_bytes(SALT_SIZE)
            salted = pbkdf2_hmac(HASHES[mechanism], word, salt, ITERATIONS_MIN)
            kept = encode(credential(mechanism, salt, salted, ITERATIONS_MIN))
            self._credentials[token_id, mechanism] = kept
        return TokenLogin(token.owner.name, kept, (token.expires_ms - now_ms) / 1000)

    async def close(self) -> None:
        await stop_watching((), self._sweeping)
        if self._notices is not None:
            await self._notices.close()
