"""The HTTP service: what its tokens are checked with."""

from collections.abc import Sequence
from pathlib import Path

from massmem.cli.checks.finding import Finding, Situation, failed, ok, skipped, without_config
from massmem.cli.token import SECRET, with_secret
from massmem.config.service import JwtConfig
from massmem.render.figures import plural


async def check_service(situation: Situation) -> Sequence[Finding]:
    """There is a secret, or public keys, as `massmem serve` wants them. Raises InputError: there is none that will do.

    For a configuration with a `server` section, or a machine that has a secret for it; others serve nothing.
    """
    config, environ = situation.config, situation.environ
    if config is None:
        return without_config()
    if "server" not in config.model_fields_set and not environ.get(SECRET):
        return [skipped(f"the configuration has no server section, and {SECRET} is not set")]
    try:
        from massmem.server.auth import Tokens
    except ModuleNotFoundError as e:
        return [failed(f"massmem serve needs the package {e.name}", "pip install 'massmem[server]'")]
    Tokens(with_secret(config, environ).server.jwt)
    return [ok(f"tokens are checked with {config.server.jwt.algorithm}, by {_keys(config.server.jwt)}")]


def _keys(jwt: JwtConfig) -> str:
    """Where they come from; nothing of a secret is shown."""
    if jwt.algorithm != "HS256":
        return f"the public keys in {Path(jwt.jwks_file or '').expanduser()}"
    given = ["server.jwt.secret"] if jwt.secret is not None else []
    given += [f"{plural(len(jwt.keys), 'key')} of server.jwt.keys"] if jwt.keys else []
    return " and ".join(given) or f"the secret in {SECRET}"
