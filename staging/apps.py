from django.apps import AppConfig


class StagingConfig(AppConfig):
    name = "staging"
    label = "staging"

    def ready(self) -> None:
        from staging.estimates import notes, uploading
        from staging.sync import counting

        notes.register(uploading.look)
        notes.register(counting.look)
