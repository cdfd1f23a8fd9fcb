"""Loaded before the settings: tests never touch the data of the installation beside them."""

import os
import tempfile

if "E31_TEST_DATA_DIR" not in os.environ:
    os.environ["E31_TEST_DATA_DIR"] = tempfile.mkdtemp(prefix="e31-tests-")
os.environ["E31_DATA_DIR"] = os.environ["E31_TEST_DATA_DIR"]
os.environ.setdefault("LOG_LEVEL", "WARNING")
