"""Every model of the package meets the contract that authors of plugins meet."""

import pytest

from orthobench.plugins import Catalog
from orthobench.testing import problems


@pytest.mark.parametrize("name", Catalog().names("model"))
def test_meets_the_contract(name):
    assert problems("model", Catalog().load("model", name)) == []
