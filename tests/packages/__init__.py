"""Packages that the tests use: clients and servers from PyPI and npm, all pinned, and programs of the system."""
