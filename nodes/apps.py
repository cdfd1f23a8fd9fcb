from django.apps import AppConfig


class NodesConfig(AppConfig):
    name = "nodes"
    label = "nodes"

    def ready(self) -> None:
        from nodes import hooks

        hooks.connect()
