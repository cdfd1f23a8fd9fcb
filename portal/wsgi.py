"""WSGI entry: uploads need a server that shows the body as it arrives (docs/adr/0002)."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
application = get_wsgi_application()
