"""The agent of a node: standard library and nvidia-ml-py only, Python 3.10 or newer, no Django."""

PROTOCOL = 1
VERSION = "0.1.0"
