import torch

from orthobench.matrices.complex_form import as_complex, as_real, complex_states, interleaved, real_form


def _complex(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.complex128, generator=torch.Generator().manual_seed(sum(shape)))


def test_real_form_acts_like_the_complex_matrix():
    weight, states = _complex(3, 4), _complex(5, 4)
    torch.testing.assert_close(interleaved(states) @ real_form(weight).T, interleaved(states @ weight.T))


def test_storage_and_states_round_trip():
    weight = _complex(3, 4)
    assert torch.equal(as_complex(as_real(weight)), weight)
    assert torch.equal(complex_states(interleaved(weight)), weight)
    a, b = weight[0, 0], weight[0, 1]
    assert interleaved(weight)[0, :4].tolist() == [a.real, a.imag, b.real, b.imag]
