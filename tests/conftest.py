"""One thread for every test: results must not depend on the machine's cores."""

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)
