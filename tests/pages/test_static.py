"""Static files as an installation serves them: under hashed names only."""

import re
from pathlib import Path

from django.core.management import call_command

from portal import settings as installed


def test_modules_import_each_other_by_the_names_that_are_served(settings, tmp_path):
    settings.STORAGES = installed.STORAGES
    settings.STATIC_ROOT = tmp_path
    call_command("collectstatic", interactive=False, verbosity=0)
    served = {path.name for path in (tmp_path / "js").glob("*.js")}
    imported = [
        Path(found).name
        for path in (tmp_path / "js").glob("*.js")
        for found in re.findall(r'^import .*? from "(.+?)"', path.read_text(), re.MULTILINE)
    ]
    assert imported
    assert set(imported) <= served
