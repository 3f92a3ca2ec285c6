import pytest

from smoe_site.words import counted


@pytest.mark.parametrize(
    ("number", "told"), [(0, "0 requests"), (1, "1 request"), (2, "2 requests"), (1234, "1,234 requests")]
)
def test_numbers_in_sentences(number, told):
    assert counted(number, "request") == told
