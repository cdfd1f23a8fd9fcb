"""Run once after a backup of the database was restored, before the portal is started again.

Raises the epoch, so that no token of an attempt is given out a second time. Work that runs on nodes
goes on; attempts that the backup does not know appear as incidents in the admin.
"""

from django.core.management.base import BaseCommand

from nodes import incidents


class Command(BaseCommand):
    help = __doc__

    def handle(self, *args: object, **options: object) -> None:
        epoch = incidents.raise_epoch()
        self.stdout.write(f"The epoch is now {epoch}: tokens from before the restore are history.")
        self.stdout.write(
            "Nothing that runs on nodes is stopped. Attempts that this database does not know "
            "become incidents when their nodes report (admin, Incidents): adopt or end each of "
            "them. Until then their GPUs are granted to nobody."
        )
