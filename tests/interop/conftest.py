"""Runs tests written as coroutines, as those of the gateway."""

from tests.gateway.conftest import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]
