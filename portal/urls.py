"""The addresses of the portal, by app. Names are global: no namespaces but the admin's."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("", include("staging.urls")),  # first: uploads are asked for most
    path("", include("portal.pages.urls")),
    path("", include("portal.teams.urls")),
    path("", include("jobs.urls")),
    path("", include("nodes.urls")),
    path("accounts/", include("portal.teams.account_urls")),
    path("admin/", admin.site.urls),
]

# One place for what is answered when something fails, to people and programs: failures.py.
handler400 = "portal.base.failures.bad_request"
handler403 = "portal.base.failures.permission_denied"
handler404 = "portal.base.failures.page_not_found"
handler429 = "portal.base.failures.too_many_requests"
handler500 = "portal.base.failures.server_error"
