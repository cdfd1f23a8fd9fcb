"""The cache's table: rate limits outlive a broker that is away."""

from django.db import models


class CacheRow(models.Model):
    """A row of Django's DatabaseCache, whose columns have these names."""

    cache_key = models.CharField(max_length=255, primary_key=True)
    value = models.TextField()
    expires = models.DateTimeField(db_index=True)

    class Meta:
        db_table = "portal_cache"

    def __str__(self) -> str:
        return self.cache_key
