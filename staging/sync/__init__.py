"""Sync: datasets whose files the portal fetches itself, from S3, server folders and HTTPS.

A source is listed once into rows (`listing.py`), cut into parts (`parts.py`), copied by pumps in
any number of workers (`pump.py`, `copying.py`), and what arrived is written down (`record.py`).
"""
