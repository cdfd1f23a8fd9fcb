"""Starts the whole product on one machine: `make run`, `make demo`. Not used by installations."""
