from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0001_initial"),
        ("nodes", "0004_gpu_name"),
    ]

    operations = [
        migrations.AddField(
            model_name="lease",
            name="in_doubt",
            field=models.BooleanField(
                default=False,
                help_text="Lost by silence, or released with its output still on a node that fell silent; its node has not said yet how far it is.",
            ),
        ),
        migrations.AlterField(
            model_name="lease",
            name="reason",
            field=models.CharField(
                blank=True,
                choices=[
                    ("", ""),
                    ("exited", "The work ended by itself."),
                    ("time_limit", "The work reached its declared hours."),
                    ("cancelled", "A member of the team cancelled the job."),
                    ("launch_failed", "The node could not start the work."),
                    ("supervisor_died", "The process that watched the work died."),
                    ("node_rebooted", "The node was started again in the middle of the work."),
                    ("gpu_fault", "A GPU of this attempt failed."),
                    ("silent", "The node was silent for longer than the silence limit."),
                    ("not_acknowledged", "The node never acknowledged the grant."),
                    ("fetch_failed", "The node could not fetch the data."),
                    ("node_disk_full", "The node has too little disk for the data and scratch."),
                    ("made_way", "It made way for a job that is earlier in the queue."),
                    (
                        "node_left",
                        "The node was drained, revoked or went offline before the start.",
                    ),
                    ("output_lost", "The output that waited on the node is lost with it."),
                    ("fenced", "Another attempt of this piece was kept."),
                    ("no_evidence", "The node could not prove that everything was removed."),
                ],
                max_length=40,
            ),
        ),
        migrations.AddConstraint(
            model_name="lease",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("in_doubt", False), ("state__in", ["lost", "released"]), _connector="OR"
                ),
                name="lease_in_doubt_after_silence",
            ),
        ),
    ]
