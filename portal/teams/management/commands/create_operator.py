"""manage.py create_operator EMAIL: an account that runs nodes and makes teams."""

import os

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser

from portal.teams.accounts import set_operator
from portal.teams.forms import read_address
from portal.teams.models import User


class Command(BaseCommand):
    help = (
        "Make an operator, or make an account that exists one. A new account gets the password in "
        "E31_PASSWORD; without it, sign in once with `manage.py signin_link` and set one."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email")

    def handle(self, *args: str, **options: str) -> None:
        password = os.environ.get("E31_PASSWORD") or None
        try:
            email = read_address(options["email"])
            user = User.objects.filter(email=email).first()
            if user is None:
                if password:
                    validate_password(password, User(email=email))
                user = User.objects.create_user(email, password)
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        set_operator(user=user, operator=True)
        self.stdout.write(f"{email} is an operator.")
