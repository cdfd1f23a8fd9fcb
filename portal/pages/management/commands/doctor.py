"""manage.py doctor: what is missing or wrong on this installation, in sentences."""

import sys

from django.core.management.base import BaseCommand, CommandParser

from portal.pages.checkup import findings


class Command(BaseCommand):
    help = "Say what is missing or wrong on this installation. The exit code is 1 on problems."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--quiet", action="store_true", help="Say problems only.")

    def handle(self, *args: str, **options: bool) -> None:
        problems = 0
        for finding in findings():
            problems += finding.level == "problem"
            if finding.level == "problem" or not options["quiet"]:
                self.stdout.write(f"{finding.level + ':':<9}{finding.sentence}")
        if problems:
            self.stdout.write(f"{problems} problem{'s' if problems > 1 else ''} found.")
            sys.exit(1)
        self.stdout.write("No problem found.")
