import pytest
from support import cuda_stub


@pytest.fixture(scope="session")
def cuda_stub_environment(tmp_path_factory) -> dict[str, str]:
    """The environment of a process that finds a CUDA runtime without a GPU."""
    return cuda_stub.build(tmp_path_factory.mktemp("cuda_stub"))
