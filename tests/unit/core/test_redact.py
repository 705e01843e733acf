import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from massmem.core.redact import (
    REDACTED,
    is_secret_key,
    mask,
    mask_values,
    redact,
    redact_file,
    redact_line,
    redact_values,
)
from tests.support.secrets import draw_secrets, find_leaks

SECRETS = [
    "sk-abcdefghijklmnop1234",
    "sk-proj-Abc_def-0123456789abcdef",
    "sk-ant-api03-Zm9vYmFyYmF6cXV4-XYZ",
    "AIzaSyA1234567890abcdefghijklmnopqrstuv",
    "gsk_0123456789abcdefghij",
    "xai-0123456789abcdefghij",
    "ghp_0123456789abcdefghij0123456789abcdef",
    "github_pat_11ABCDEFG0abcdefghijkl_0123456789",
    "hf_abcdefghijklmnopqrstuvwxyz",
    "AKIAIOSFODNN7EXAMPLE",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
]  # fmt: skip


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("around", ["{}", "key {} rejected", "'{}'", "({})", "a={}&b=1", "\n{}\n"])
def test_key_shapes(secret: str, around: str) -> None:
    shown = redact(around.format(secret))
    assert secret not in shown
    assert REDACTED in shown


AROUND = [
    "{}", "the server said {} and no more", "'{}'", '"{}"', "({})", "a, {}, b", "\n{}\n", "\t{}", "401 {} (check it)",
    "[{}]", "<{}>", "`{}`", "{}.", "x={}", "ключ{}",
]  # fmt: skip


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("written", [str, json.dumps, lambda text: json.dumps(json.dumps(text)), repr])
def test_two_hundred_secrets_in_every_surrounding(around: str, written: Callable[[str], str]) -> None:
    """Also as JSON and repr write them, where a line break before a key ends in a letter."""
    secrets = draw_secrets()
    assert len({secret.value for secret in secrets}) == 200
    texts = [written(around.replace("{}", secret.text)) for secret in secrets]
    assert not [
        found for text, secret in zip(texts, secrets, strict=True) for found in find_leaks(redact(text), [secret])
    ]
    assert find_leaks("\n".join(texts), secrets)


@pytest.mark.parametrize(
    ("text", "kept", "gone"),
    [
        ("Authorization: Bearer abc.def.ghi", "Authorization: Bearer", "abc.def"),
        ("authorization: Basic dXNlcjpwYXNz", "authorization: Basic", "dXNlcjpwYXNz"),
        ("use Bearer 0123456789abcdef now", "use Bearer", "0123456789"),
        ("postgresql://me:p@ss:w@rd@db/x", "postgresql://me:[redacted]@db/x", "ss:w"),
        ("redis://:hunter2@localhost:6379/0", "redis://:[redacted]@localhost:6379/0", "hunter2"),
        ("https://h/p?key=abcd&x=1", "x=1", "abcd"),
        ("https://h/p?x=1&access_token=abcd#top", "#top", "abcd"),
        ("api_key=hunter2, model=x", "model=x", "hunter2"),
        ("OPENAI_API_KEY='hunter2'", "OPENAI_API_KEY=", "hunter2"),
        ('{"api_key": "hunter2", "a": "b"}', '"a": "b"', "hunter2"),
        (r"{\"password\": \"hunter2\"}", "password", "hunter2"),
        ("password: correct-horse-7-battery", "password:", "horse"),
        ("x -----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY----- y", " y", "MIIE"),
        ("-----BEGIN PRIVATE KEY-----\nMIIE", "", "MIIE"),
    ],
)
def test_in_context(text: str, kept: str, gone: str) -> None:
    shown = redact(text)
    assert kept in shown
    assert gone not in shown


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("hi, my password is hunter, thanks", "hunter"),
        ("My old password for the shop is: correct-horse", "correct-horse"),
        ("our database password was 'swordfish'", "swordfish"),
        ("my PIN: 4711", "4711"),
        ("the password is s3cret!", "s3cret!"),
        ("The API key for staging is ab12cd34ef", "ab12cd34ef"),
        ("mein Passwort ist Sonnenblume", "Sonnenblume"),
        ("das Kennwort lautet Rose2024", "Rose2024"),
        ("mon mot de passe est soleil", "soleil"),
        ("mi contraseña es girasol", "girasol"),
        ("mi contrasen\u0303a es girasol", "girasol"),
        ("login --username me --password hunter", "hunter"),
        ("tool --api-key abcdef --verbose", "abcdef"),
        ("tool --auth-token 'abcdef'", "abcdef"),
        ("mysql -h db -u root -phunter shop", "hunter"),
        ("mysqldump -u root -p'hunter' shop", "hunter"),
        ("sshpass -p hunter ssh me@host", "hunter"),
        ("redis-cli -h cache -a hunter ping", "hunter"),
        ("curl -u admin:hunter https://host/", "hunter"),
        ("curl --user=admin:hunter https://host/", "hunter"),
        ("machine host.example login me password hunter", "hunter"),
        ("machine host.example\n  login me\n  password hunter", "hunter"),
        ("Cookie: session=hunter; theme=dark", "hunter"),
        ("Set-Cookie: id=hunter; Path=/", "hunter"),
    ],
)
def test_secret_as_people_and_commands_write_it_is_replaced(text: str, secret: str) -> None:
    shown = redact(text)
    assert secret not in shown
    assert REDACTED in shown
    assert redact(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "my password is wrong, what now?",
        "My password manager is great",
        "the token is missing",
        "the secret is to stir it well",
        "mein Passwort ist falsch",
        "set it with --password or --token-file",
        "docker run -u 1000:1000 image",
        "mkdir -p /tmp/x && mysql -p shop",
        "a login prompt and a password field",
        "agents.0.backend.api_key: OPENAI_API_KEY is not set",
        "a basic understanding of bearer bonds and bearer certificates",
        "task-0123456789abcdefghijk is not a key, max_tokens=100 neither",
        "http://localhost:8080/a?page=2 and a//b:c",
        "the secret of good prompts",
        "monkey=banana",
    ],
)
def test_prose_stays(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    "unit",
    ["a", "sk-", "-eyJ", "eyJaaaaaaaa.", "//a:", "//", ":", "@", "bearer ", "api_key", "api_key:", "?key=", "&a_token",
     "-----BEGIN PRIVATE KEY-----", "-----BEGIN ", "authorization:", "token\\", "'\\", " ", "password: a"],
)  # fmt: skip
def test_hostile_text_is_fast(unit: str) -> None:
    text = unit * (200_000 // len(unit))
    start = time.process_time()
    redact(text)
    assert time.process_time() - start < 2


PARTS = [
    *SECRETS, "sk-", "Authorization", "AUTHORIZATION: ", "Bearer ", "basic ", "://", "//me:", "@host", ":", "=", "?",
    "&", "key=", "code=", "Api-Key", "apikey", "my_Token", "passwd", "password", "SECRET_access_key", '"', "'", "\\",
    "hunter2", "0123456789abcdef", "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "max_token", ".", "Ä",
    " ", "\n",
]  # fmt: skip


@given(st.lists(st.one_of(st.sampled_from(PARTS), st.text(max_size=3)), max_size=12).map("".join))
def test_hints_are_in_every_text_with_a_secret(text: str) -> None:
    # With this word every pattern is tried; so many lines on, it belongs to nothing in the text.
    far = "-----END KEY-----" + "\n" * 12
    assert redact(text + far + "cookie") == redact(text + far) + "cookie"


def test_letters_that_only_look_alike_hide_nothing() -> None:
    for name in ("pa\u017f\u017fword", "\u017fecret", "to\u212aen", "author\u0131zation", "AUTHOR\u0130ZATION"):
        assert "hunter2hunter2" not in redact(f"{name}=hunter2hunter2")


def test_values_by_key() -> None:
    data = {
        "api_key": "hunter2",
        "X-Api-Key": ["hunter2"],
        "openaiApiKey": 7,
        "usage": {"max_tokens": 5, "tokens": [1]},
        "list": [{"password": {"a": "hunter2"}}, ("see sk-abcdefghijklmnop1234",)],
        "token": None,
        3: True,
    }
    assert redact_values(data) == {
        "api_key": REDACTED,
        "X-Api-Key": REDACTED,
        "openaiApiKey": REDACTED,
        "usage": {"max_tokens": 5, "tokens": [1]},
        "list": [{"password": REDACTED}, (f"see {REDACTED}",)],
        "token": None,
        3: True,
    }
    assert data["api_key"] == "hunter2"


def test_values_of_chosen_keys_only() -> None:
    assert redact_values({"api_key": "x", "ssn": "y"}, ["ssn"]) == {"api_key": "x", "ssn": REDACTED}
    assert is_secret_key("auth-token")
    assert not is_secret_key("tokens")


def test_deep_nesting_ends() -> None:
    deep: object = "sk-abcdefghijklmnop1234"
    for _ in range(5_000):
        deep = [deep]
    assert "sk-" not in json.dumps(redact_values(deep))


@given(st.text(), st.sampled_from(SECRETS))
def test_never_fails_and_keeps_no_key(text: str, secret: str) -> None:
    assert secret not in redact(f"{text} {secret}")


def test_values_are_replaced_by_their_names() -> None:
    values = {"order_id": "O-12345", "order": "O-123", "size": 7, "sure": True, "empty": " "}
    assert mask("O-12345, O-123 of size 7, not 17; True", values) == "[order_id], [order] of size [size], not 17; True"
    assert mask("XO-12345", values) == "XO-12345"
    assert mask_values({"said": ["O-12345", 7]}, values) == {"said": ["[order_id]", 7]}


@given(st.text(), st.from_regex(r"[A-Z]-[0-9]{4,9}", fullmatch=True))
def test_a_masked_value_is_nowhere_as_a_word(text: str, value: str) -> None:
    assert value not in mask(f"{text} {value} ", {"x": value}).split()


def test_the_dots_of_an_instruction_stay():
    for told in ("export OPENAI_API_KEY=...", "token=... in .env", "a line API_KEY='...' in it"):
        assert redact(told) == told
    assert redact("password=...hunter2") == "password=[redacted]"


def test_longer_value_is_masked_before_one_that_it_holds():
    values = {"order": "A-17", "line": "A-17-3"}
    assert mask("Where is A-17-3 of A-17?", values) == "Where is [line] of [order]?"


@pytest.mark.parametrize("wrap", [lambda value: [value], lambda value: {"in": value}])
def test_nesting_is_followed_for_a_hundred_levels(wrap: Callable[[Any], Any]):
    def nest(levels: int, value: Any) -> Any:
        for _ in range(levels):
            value = wrap(value)
        return value

    assert redact_values(nest(100, "a word")) == nest(100, "a word")


def test_line_is_redacted_before_it_is_cut():
    key = f"sk-{'a1B2' * 12}"
    text = f"refused:\n{'x' * 180} {key} " + "y" * 900
    assert "sk-" not in redact_line(text, 200)
    assert len(redact_line(text, 200)) == 200


DATA = {
    "DB=postgres://bob:{}@db/x": "s3cr3t", "export AWS_SECRET_ACCESS_KEY={}": "wJalrXUtnFEMI/K7MDENG",
    "Authorization: Bearer {}": "abcdef0123456789abcdef", "  db_password: {}": "hunter", "SMTP_PASS={}": "letters",
    '{{"password": "{}"}}': "correct horse", "<db.password>{}</db.password>": "hunter", "clientSecret: {}": "Ab3x9",
    "-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----": "b3BlbnNz\naC1rZXk",
}  # fmt: skip
"""Lines of files, and the secret in each."""
PROGRAM = {
    'url = "postgres://u:{}@host/x"': "pass1", 'os.environ["AWS_SECRET_ACCESS_KEY"] = "{}"': "wJalrXUtnFEMI/K7",
    "const apiKey = '{}';": "abc123def456ghi", 'h = {{"Authorization": "Basic {}"}}': "dXNlcjpwYXNzd29yZDE=",
    "export API_TOKEN={}": "abc123def456", 'password: str = "{}"': "hunter2x",
}  # fmt: skip


@pytest.mark.parametrize("is_program", [False, True])
def test_secrets_of_a_file_are_replaced_and_its_lines_keep_their_numbers(is_program: bool) -> None:
    for line, secret in (PROGRAM if is_program else DATA).items():
        text = f"first\n{line.format(secret)}\nlast"
        shown = redact_file(text, is_program=is_program)
        assert REDACTED in shown, line
        assert not any(part in shown for part in secret.split("\n")), line
        assert shown.split("\n")[text.count("\n")] == "last"


def test_a_program_and_a_template_that_only_name_secrets_stay() -> None:
    program = (
        'token = read_token()\napi_key = os.environ["API_KEY"]\nh = {"Authorization": f"Bearer {token}"}\n'
        'url = f"postgres://{user}:{password}@{host}"\ndef f(token: str, secret: bytes = b""): return token\n'
        'if token == "end": pass\ntokens = tokenize(text)\nself.password = password\n'
    )
    assert redact_file(program, is_program=True) == program
    template = "password: ${DB_PASSWORD}\ntoken: null\nmax_tokens: 100\n<password>{{ value }}</password>\n"
    assert redact_file(template) == template
