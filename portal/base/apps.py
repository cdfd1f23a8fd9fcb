from django.apps import AppConfig


class BaseConfig(AppConfig):
    name = "portal.base"
    label = "base"
