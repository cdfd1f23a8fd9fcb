"""manage.py signin_link EMAIL: a link that signs this person in once."""

from datetime import timedelta

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser

from portal.base.errors import DomainError
from portal.teams.accounts import create_link
from portal.teams.forms import read_address
from portal.teams.models import User


class Command(BaseCommand):
    help = "Print the address of a one-time link that signs a person in."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email")
        parser.add_argument("--next", default="/", help="The path to land on (default /).")
        parser.add_argument("--minutes", type=int, default=60, help="How long it works.")

    def handle(self, *args: str, **options: str) -> None:
        try:
            user = User.objects.filter(email=read_address(options["email"])).first()
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        if user is None:
            raise CommandError(f"There is no account with the address {options['email']}.")
        minutes = int(options["minutes"])
        if not 1 <= minutes <= 30 * 24 * 60:
            raise CommandError("--minutes must be from 1 to 43200.")
        lifetime = timedelta(minutes=minutes)
        try:
            address = create_link(user=user, next_path=options["next"], lifetime=lifetime)
        except DomainError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(address)
