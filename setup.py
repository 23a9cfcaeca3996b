"""Finds the packages: all under `tracejit/`, and `kernels/`, which is imported as `tracejit.kernels`."""

from setuptools import find_packages, setup

setup(
    packages=[
        *find_packages(include=["tracejit", "tracejit.*"]),
        *(f"tracejit.{name}" for name in find_packages(include=["kernels", "kernels.*"])),
    ],
)
