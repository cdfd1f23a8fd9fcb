"""Make a node and print the one-time token that its agent enrols with."""

from argparse import ArgumentParser

from django.core.management.base import BaseCommand, CommandError

from nodes import fleet
from portal.base.errors import DomainError


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name")
        parser.add_argument("--simulated", action="store_true", help="its GPUs are made up")

    def handle(self, *args: object, **options: object) -> None:
        try:
            _, token = fleet.create_node(
                name=str(options["name"]),
                actor="command line",
                simulated=bool(options["simulated"]),
            )
        except DomainError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(token)
