"""manage.py encrypt_again: every secret under the newest of FIELD_KEYS."""

from django.core.management.base import BaseCommand

from jobs.models import Variable
from portal.base.crypto import decrypt, encrypt
from staging.sync.connections import seal_again


def _variables_again() -> int:
    count = 0
    for row in Variable.objects.filter(secret=True).iterator():
        rows = Variable.objects.filter(pk=row.pk, stored=row.stored)
        count += rows.update(stored=encrypt(decrypt(row.stored)))
    return count


class Command(BaseCommand):
    help = (
        "Encrypt the secrets of connections and jobs with the first of FIELD_KEYS. Once it is "
        "done, the keys behind the first may be taken away."
    )

    def handle(self, *args: str, **options: object) -> None:
        connections, variables = seal_again(), _variables_again()
        self.stdout.write(f"Encrypted again: {connections} connections, {variables} variables.")
