"""Settings: readers of the environment, no application logic. Launch options stand in `options.py`."""

import os
import secrets
from pathlib import Path
from typing import Any

import dj_database_url

from . import options

BASE_DIR = options.BASE_DIR
SMOE = options.from_environment()


def _secret_key(path: Path) -> str:
    """SMOE_SECRET_KEY, else one made at first start and kept in the data directory (mode 0600)."""
    if key := os.environ.get("SMOE_SECRET_KEY"):
        return key
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.read_text() if path.exists() else _new_key(path)
    except OSError as error:
        raise options.OptionError(
            f"The data directory {path.parent} cannot be used ({error.strerror}): make it writable, "
            "or name another with --data-dir (SMOE_DATA_DIR)."
        ) from None


def _new_key(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:  # another process was faster
        return path.read_text()
    key = secrets.token_urlsafe(50)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(key)
    except OSError:
        path.unlink()  # on a full disk an empty one would stay
        raise
    return key


SECRET_KEY = _secret_key(SMOE.data_dir / "secret_key")
DEBUG = os.environ.get("SMOE_DEBUG", "") == "1"
ALLOWED_HOSTS = ["*"]  # the Host check is api/auth's: it knows the listening address

INSTALLED_APPS = [
    "daphne",
    "fleet.admin_app.FleetAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "fleet",
    "api",
    "engine",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "smoe_site.compression.CompressPublic",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "smoe_site.urls"
ASGI_APPLICATION = "smoe_site.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
SQLITE = {
    "ENGINE": "django.db.backends.sqlite3",
    "NAME": SMOE.data_dir / "db.sqlite3",
    "CONN_MAX_AGE": None,  # a database in WAL mode can be read on a full disk, but not opened
    "OPTIONS": {
        "timeout": 20,
        "transaction_mode": "IMMEDIATE",
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    },
}
# DATABASE_URL=postgres://user:password@host/name, with the extra `postgres` installed.
DATABASE_URL = os.environ.get("DATABASE_URL", "")


def _database_of(url: str) -> dict[str, Any]:
    """A server that does not answer is an error after seconds: without a limit every request would wait with it."""
    database = dict(dj_database_url.parse(url))
    if database["ENGINE"] == "django.db.backends.postgresql":
        limits = {"connect_timeout": 5, "tcp_user_timeout": 10_000}  # seconds; milliseconds until a sent byte is lost
        database["OPTIONS"] = limits | database.get("OPTIONS", {})
    return database


DATABASES = {"default": _database_of(DATABASE_URL) if DATABASE_URL else SQLITE}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "templates" / "static"]
WHITENOISE_USE_FINDERS = True
USE_TZ = True
TIME_ZONE = os.environ.get("TZ", "UTC").lstrip(":") or "UTC"
LANGUAGE_CODE = "en"

LOGIN_REDIRECT_URL = "admin:index"  # after a sign-in whose `next` leads elsewhere
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Strict"
BEHIND_PROXY = os.environ.get("SMOE_HTTPS") == "1"  # one that ends TLS and tells scheme and client (deploy/nginx.conf)
if BEHIND_PROXY:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SECURE_SSL_REDIRECT = SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = True
    SECURE_REDIRECT_EXEMPT = [r"^control/", r"^metrics$"]  # this machine's own, past the proxy
    SECURE_HSTS_SECONDS = 86_400
    SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]  # other hosts of the domain are not ours to decide
else:
    # smoe.W012 says what these four come to: nobody sets them one by one.
    SILENCED_SYSTEM_CHECKS = ["security.W004", "security.W008", "security.W012", "security.W016"]
