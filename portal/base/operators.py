"""Django's admin app, with the site of portal/base/site.py in place of its own."""

from django.contrib.admin.apps import AdminConfig


class OperatorAdminConfig(AdminConfig):
    default_site = "portal.base.site.OperatorSite"
