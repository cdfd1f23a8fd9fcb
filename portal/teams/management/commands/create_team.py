"""manage.py create_team NAME --admin EMAIL: a team, and the invitation of its first admin."""

import os

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from portal.base.errors import DomainError
from portal.teams import services
from portal.teams.forms import read_address
from portal.teams.models import User

ACTOR = "command line"


class Command(BaseCommand):
    help = (
        "Make a team and print its first admin's invitation link. With --password the account is "
        "made at once with the password in E31_PASSWORD, for demos."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")
        parser.add_argument("--admin", required=True, metavar="EMAIL")
        parser.add_argument("--password", action="store_true", help="Read E31_PASSWORD.")

    def handle(self, *args: str, **options: str) -> None:
        name = str(options["name"]).strip()
        try:
            email = read_address(options["admin"])
            if options["password"]:
                self._with_account(name, email)
            else:
                _, invited = services.create_team(name=name, actor=ACTOR, first_admin=email)
                self.stdout.write(invited.address)
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        except DomainError as error:
            raise CommandError(str(error)) from error

    def _with_account(self, name: str, email: str) -> None:
        password = os.environ.get("E31_PASSWORD", "")
        user = User.objects.filter(email=email).first()
        if user is None:
            validate_password(password, User(email=email))
        with transaction.atomic():
            team, invited = services.create_team(name=name, actor=ACTOR, first_admin=email)
            if user is None:
                services.accept_with_new_account(invitation=invited.invitation, password=password)
            else:
                services.accept_invitation(invitation=invited.invitation, user=user)
        self.stdout.write(f"{email} is an admin of {team}.")
