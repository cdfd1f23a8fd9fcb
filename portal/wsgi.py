"""WSGI entry: uploads need a server that shows the body as it arrives (docs/adr/0002)."""

import gc
import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
application = get_wsgi_application()
# What was loaded so far stays: the collector need not look at it again and again.
gc.collect()
gc.freeze()
