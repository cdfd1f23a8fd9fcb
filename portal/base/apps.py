from django.apps import AppConfig, apps

SHORT = {"cpus": "CPUs", "cpu": "CPU", "gpus": "GPUs", "gpu": "GPU"}


class BaseConfig(AppConfig):
    name = "portal.base"
    label = "base"

    def ready(self) -> None:
        """Columns are shown under their names: write those abbreviations as they are written."""
        for model in apps.get_models():
            for field in model._meta.fields:
                words = str(field.verbose_name).split(" ")
                field.verbose_name = " ".join(SHORT.get(word, word) for word in words)
