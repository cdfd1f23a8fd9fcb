"""Loaded before the settings: tests never touch the data of the installation beside them."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

if "E31_TEST_DATA_DIR" not in os.environ:  # the workers of a parallel run inherit it
    os.environ["E31_TEST_DATA_DIR"] = tempfile.mkdtemp(prefix="e31-tests-")
    atexit.register(shutil.rmtree, os.environ["E31_TEST_DATA_DIR"], ignore_errors=True)
os.environ["E31_DATA_DIR"] = os.environ["E31_TEST_DATA_DIR"]
Path(os.environ["E31_DATA_DIR"], "staticfiles").mkdir(exist_ok=True)  # WhiteNoise looks for it
os.environ.setdefault("LOG_LEVEL", "WARNING")
