"""The configuration of the HTTP service. One line under each field, as in models.py."""

from typing import Literal

from pydantic import Field

from massmem.config.section import Secret, Section


class JwtConfig(Section):
    algorithm: Literal["HS256", "RS256", "ES256"] = "HS256"
    """The only algorithm accepted."""
    secret: Secret | None = None
    """HS256 key, 32 bytes at least, of tokens that name no key; left out: MASSMEM_JWT_SECRET."""
    keys: dict[str, Secret] = Field(default_factory=dict[str, Secret], max_length=20)
    """HS256 keys by the name (kid) that tokens give; new tokens are signed with the last one."""
    jwks_file: str | None = None
    """Public keys for RS256 and ES256; read again when it has changed."""
    audience: str | None = None
    """Required audience."""
    issuer: str | None = None
    """Required issuer."""
    max_lifetime: int = Field(default=86_400, ge=60)
    """Longest lifetime of a token, seconds."""
    revoked_file: str | None = None
    """Tokens that no longer count, one `jti` a line; read again when it has changed."""


class LimitsConfig(Section):
    body: int = Field(default=1_000_000, ge=1_000, le=100_000_000)
    """Largest body of a request, bytes."""
    body_timeout: float = Field(default=30, gt=0)
    """Seconds in which a body must have arrived."""
    requests: int = Field(default=600, ge=1)
    """Requests of one user in a minute."""
    turns_per_user: int = Field(default=4, ge=1)
    """Questions of one user at the same time, in each process."""
    turns: int = Field(default=64, ge=1)
    """Questions at the same time, in each process."""
    streams_per_user: int = Field(default=50, ge=1)
    """Open event streams of one user, in each process."""
    counted_in: str | None = None
    """Where requests are counted, redis://...; left out: in each process, by itself."""


class ServerConfig(Section):
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(default=4000, ge=0, le=65535)
    """Port to listen on."""
    workers: int = Field(default=1, ge=1, le=64)
    """Processes."""
    jwt: JwtConfig = JwtConfig()
    """How tokens are checked."""
    limits: LimitsConfig = LimitsConfig()
    """What one user, and all of them, may ask for."""
    teams: dict[str, str] = Field(default_factory=dict[str, str], max_length=100)
    """Further teams that requests may name: a configuration file each, of which agents and coordination count."""
    grace: float = Field(default=20, ge=0)
    """Seconds for which a process that is told to stop goes on with its questions; another one finishes the rest."""
