"""Who asks: the session and the person behind it, read without a query builder.

Both are read by every request of a person, and building the two queries takes longer than the
database does for them.
"""

from allauth.account.auth_backends import AuthenticationBackend
from django.contrib.sessions.backends import db
from django.utils import timezone

from portal.base.rows import find, when
from portal.teams.models import User


class SessionStore(db.SessionStore):
    """Django's sessions in the database (SESSION_ENGINE names this module)."""

    def _get_session_from_db(self):
        where = "session_key = %s AND expire_date > %s"
        row = find(self.model, where, [self.session_key, when(timezone.now())])
        if row is None:
            self._session_key = None
        return row


class PersonBackend(AuthenticationBackend):
    """allauth's sign-in by address and password."""

    def get_user(self, user_id: int) -> User | None:
        user = find(User, "id = %s", [user_id])
        return user if user and self.user_can_authenticate(user) else None
