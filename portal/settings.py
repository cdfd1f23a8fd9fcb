"""One settings file. Everything that differs between installations comes from the environment.

docs/SETTINGS.md lists the variables. Defaults make one machine work with nothing else installed:
SQLite, an embedded broker, a folder as the store.
"""

from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import dj_database_url
from django.core.exceptions import ImproperlyConfigured
from django.utils.csp import CSP

from portal import private
from portal.env import Env, left_by_run
from portal.keys import read_or_make_key

env = Env()
BASE_DIR = Path(__file__).resolve().parent.parent
DATA_DIR = env.folder("E31_DATA_DIR", BASE_DIR / "var")
env.beneath = left_by_run(DATA_DIR)  # while `make run` is up: the address it listens at
with suppress(OSError):  # whoever writes there next says it better
    private.close_folder(DATA_DIR)

DEBUG = env.flag("DEBUG")
SECRET_KEY = env.text("SECRET_KEY") or read_or_make_key(DATA_DIR / "keys" / "secret-key")
SECRET_KEY_FALLBACKS = env.words("SECRET_KEY_FALLBACKS")
# Fernet keys, newest first: the first encrypts, all decrypt, so a key can be rotated.
FIELD_KEYS = env.words("FIELD_KEYS") or [
    read_or_make_key(DATA_DIR / "keys" / "field-key", kind="fernet")
]
RECORD_KEY = env.text("RECORD_KEY") or read_or_make_key(
    DATA_DIR / "keys" / "record-key", kind="ed25519"
)
PUBLIC_URL = env.url("PUBLIC_URL", "http://127.0.0.1:8000", {"http", "https"}).rstrip("/")
SECURE = PUBLIC_URL.startswith("https://")
ALLOWED_HOSTS = env.words("ALLOWED_HOSTS", ("127.0.0.1", "localhost", "[::1]"))
CSRF_TRUSTED_ORIGINS = [PUBLIC_URL]
CSRF_FAILURE_VIEW = "portal.base.failures.form_out_of_date"

INSTALLED_APPS = [
    "portal.base",
    "portal.teams",
    "staging",
    "jobs",
    "nodes",
    "portal.pages",
    "portal.base.operators.OperatorAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "django_htmx",
    "allauth",
    "allauth.account",
    "storages",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.middleware.csp.ContentSecurityPolicyMiddleware",
    "portal.base.middleware.RequestContextMiddleware",
    "portal.base.middleware.NoNulMiddleware",
    "staging.shortcut.UploadShortcut",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "portal.base.middleware.BodyMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "portal.teams.middleware.TeamMiddleware",
    "portal.base.middleware.DomainErrorMiddleware",
]

ROOT_URLCONF = "portal.urls"
WSGI_APPLICATION = "portal.wsgi.application"

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
                "portal.teams.context.current_team",
            ],
        },
    }
]

DATABASE_URL = env.url(
    "DATABASE_URL", f"sqlite:///{DATA_DIR / 'portal.sqlite3'}", {"sqlite", "postgres", "postgresql"}
)
DATABASES = {"default": dj_database_url.parse(DATABASE_URL, conn_max_age=60)}
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    if DATABASES["default"]["NAME"] != ":memory:":
        private.close_database(Path(DATABASES["default"]["NAME"]))
    DATABASES["default"]["OPTIONS"] = {
        # IMMEDIATE: a transaction that will write says so at its start, so compare-and-swap
        # never fails half-way with "database is locked". FULL: a commit survives a power cut.
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;",
    }
elif find_spec("psycopg") is None:
    raise ImproperlyConfigured(
        "DATABASE_URL names PostgreSQL, but its driver psycopg is not installed; run: "
        "uv pip install --python .venv/bin/python 'psycopg[binary]'."
    )
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

BROKER_SOCKET = DATA_DIR / "broker" / "broker.sock"
# The embedded broker listens on a socket in DATA_DIR; another is named by REDIS_URL.
REDIS_URL = env.url("REDIS_URL", f"unix://{BROKER_SOCKET}", {"redis", "rediss", "unix"})
EMBEDDED_BROKER = REDIS_URL.startswith("unix://")
CELERY_BROKER_URL = REDIS_URL.replace("unix://", "redis+socket://", 1)
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "visibility_timeout": 12 * 3600,
    # Without these a request that wakes a pump waits 12 s for a broker that is away.
    "max_retries": 0,
    "socket_connect_timeout": 2,
}
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TASK_ACKS_LATE = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_TIME_LIMIT = 60
CELERY_TASK_DEFAULT_QUEUE = "control"
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TASK_PUBLISH_RETRY = False

# The cache holds rate limits. The embedded broker may be away while people sign in, so the
# database keeps it then; a server that REDIS_URL names is there for all of the portal's processes.
CACHES: dict[str, dict[str, object]] = {
    "default": {
        "BACKEND": "django.core.cache.backends.db.DatabaseCache",
        "LOCATION": "portal_cache",
        "OPTIONS": {"MAX_ENTRIES": 20_000},
    }
    if EMBEDDED_BROKER
    else {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": REDIS_URL,
        "KEY_PREFIX": "e31",
        "OPTIONS": {"socket_connect_timeout": 2, "socket_timeout": 2},
    }
}

STORAGE_URL = env.url("STORAGE_URL", f"file://{DATA_DIR / 'store'}", {"file"})
STORE_ROOT = Path(STORAGE_URL.removeprefix("file://"))
if not STORE_ROOT.is_absolute():
    raise ImproperlyConfigured("STORAGE_URL must name an absolute folder: file:///path.")
MEDIA_ROOT = DATA_DIR / "media"
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "portal.base.static.HashedStorage"},
}
STATIC_URL = "/static/"
STATIC_ROOT = DATA_DIR / "staticfiles"
STATICFILES_DIRS = [BASE_DIR / "static"]
WHITENOISE_KEEP_ONLY_HASHED_FILES = True

AUTH_USER_MODEL = "teams.User"
AUTHENTICATION_BACKENDS = ["portal.teams.sessions.PersonBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {
        "NAME": "django.contrib.auth.password_validation.MinimumLengthValidator",
        "OPTIONS": {"min_length": 10},
    },
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "home"
ACCOUNT_ADAPTER = "portal.teams.adapter.ClosedAdapter"
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*", "password2*"]
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_EMAIL_VERIFICATION = "none"  # an account begins with an invitation sent to its address
ACCOUNT_LOGOUT_ON_PASSWORD_CHANGE = True
ACCOUNT_PREVENT_ENUMERATION = True
ACCOUNT_EMAIL_UNKNOWN_ACCOUNTS = False  # no mail to addresses that have no account
ACCOUNT_SESSION_REMEMBER = True
ACCOUNT_FORMS = {
    "login": "portal.teams.account_forms.LoginForm",
    "reauthenticate": "portal.teams.account_forms.ReauthenticateForm",
    "change_password": "portal.teams.account_forms.ChangePasswordForm",
    "set_password": "portal.teams.account_forms.SetPasswordForm",
    "reset_password": "portal.teams.account_forms.ResetPasswordForm",
    "reset_password_from_key": "portal.teams.account_forms.ResetPasswordKeyForm",
}

SMTP = "django.core.mail.backends.smtp.EmailBackend"
CONSOLE = "django.core.mail.backends.console.EmailBackend"
NO_MAIL = "portal.base.nomail.EmailBackend"
MAILERS: dict[str, dict] = {
    "default": {"BACKEND": env.choice("EMAIL_BACKEND", NO_MAIL, {NO_MAIL, CONSOLE, SMTP})}
}
if MAILERS["default"]["BACKEND"] == SMTP:
    MAILERS["default"]["OPTIONS"] = {
        "host": env.text("EMAIL_HOST", "localhost"),
        "port": env.number("EMAIL_PORT", 25, least=1, most=65535),
        "username": env.text("EMAIL_HOST_USER"),
        "password": env.text("EMAIL_HOST_PASSWORD"),
        "use_tls": env.flag("EMAIL_USE_TLS"),
        "timeout": 10,
    }
DEFAULT_FROM_EMAIL = env.text("DEFAULT_FROM_EMAIL", "portal@localhost")

USE_TZ = True
FORMAT_MODULE_PATH = "portal.base.formats"
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"
USE_I18N = False

SESSION_ENGINE = "portal.teams.sessions"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE
SESSION_COOKIE_HTTPONLY = True
BEHIND_PROXY = env.flag("BEHIND_PROXY")
SECURE_SSL_REDIRECT = SECURE and not BEHIND_PROXY
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$"]
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if BEHIND_PROXY else None
ALLAUTH_TRUSTED_PROXY_COUNT = 1 if BEHIND_PROXY else 0  # whose X-Forwarded-For rate limits trust
SECURE_HSTS_SECONDS = 365 * 86400 if SECURE else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = SECURE
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
SECURE_CSP = {
    "default-src": [CSP.NONE],
    "script-src": [CSP.SELF],
    "style-src": [CSP.SELF],
    "img-src": [CSP.SELF, "data:"],
    "font-src": [CSP.SELF],
    "connect-src": [CSP.SELF],
    "worker-src": [CSP.SELF],
    "form-action": [CSP.SELF],
    "base-uri": [CSP.NONE],
    "frame-ancestors": [CSP.NONE],
}
DATA_UPLOAD_MAX_MEMORY_SIZE = 8 * 2**20
DATA_UPLOAD_MAX_NUMBER_FIELDS = 20_000
DATA_UPLOAD_MAX_NUMBER_FILES = 20_000
MESSAGE_STORAGE = "django.contrib.messages.storage.session.SessionStorage"

# What an operator sets about time and room; names and meanings are in docs/SETTINGS.md.
OUTPUT_WINDOW = env.seconds("OUTPUT_WINDOW_S", 120, least=1)
SILENCE_LIMIT = env.seconds("SILENCE_LIMIT_S", 15 * 60, least=10)
GRANT_LIMIT = env.seconds("GRANT_LIMIT_S", 60, least=5)
TERM_MARGIN = env.seconds("TERM_MARGIN_S", 30, least=1)
AGENT_POLL = env.seconds("AGENT_POLL_S", 2, least=1)
ENROLMENT_LIFETIME = env.seconds("ENROLMENT_LIFETIME_S", 86400, least=60)
INVITATION_LIFETIME = env.seconds("INVITATION_LIFETIME_S", 7 * 86400, least=60)
UPLOAD_LIFETIME = env.seconds("UPLOAD_LIFETIME_S", 7 * 86400, least=60)
LARGEST_UPLOAD_BYTES = env.number("LARGEST_UPLOAD_BYTES", 5 * 2**40, least=1)
DISK_FLOOR_BYTES = env.number("DISK_FLOOR_BYTES", 2**30)
LARGEST_CODE_BYTES = env.number("LARGEST_CODE_BYTES", 64 * 2**20, least=1)
LARGEST_LOG_BYTES = env.number("LARGEST_LOG_BYTES", 64 * 2**20, least=4096)
# Days; 0 means that no retention period has been published, and data stays until deleted.
DEFAULT_RETENTION_DAYS = env.number("DEFAULT_RETENTION_DAYS", 0, most=36500)
RATE_TEXT = env.text("RATE_TEXT")
# What sync may reach beyond public addresses, who lends it a role, and how much of it runs at once.
SYNC_ALLOWED_NETWORKS = env.networks("SYNC_ALLOWED_NETWORKS")
SYNC_ROLE_FILE = env.text("SYNC_ROLE_FILE")
SYNC_WORKERS = env.number("SYNC_WORKERS", 2, least=1, most=1000)
ALLOW_PROCESS_ISOLATION = env.flag("ALLOW_PROCESS_ISOLATION")

LOG_FORMAT = env.choice("LOG_FORMAT", "console", {"console", "json"})
from portal.logs import configure_logging  # noqa: E402

LOGGING_CONFIG = None
configure_logging(LOG_FORMAT, env.choice("LOG_LEVEL", "INFO", {"DEBUG", "INFO", "WARNING"}))
