"""nimble.settings, over the package's view of the options."""

import pytest

from nimble import settings
from nimble.options import OPTIONS


@pytest.mark.parametrize("name", [name for name, option in OPTIONS.items() if option.words])
def test_a_word_that_is_not_known_counts_as_the_default(name, monkeypatch):
    option = OPTIONS[name]
    monkeypatch.delenv(f"NIMBLE_{name}", raising=False)
    assert settings.word(name) == option.default
    for value in option.words:
        monkeypatch.setenv(f"NIMBLE_{name}", value)
        assert settings.word(name) == value
    for value in ("", "no-such-word", option.default.upper()):
        monkeypatch.setenv(f"NIMBLE_{name}", value)
        assert settings.word(name) == option.default


@pytest.mark.parametrize("name", [name for name, option in OPTIONS.items() if option.separator])
def test_a_list_is_its_parts(name, monkeypatch):
    between = OPTIONS[name].separator
    monkeypatch.delenv(f"NIMBLE_{name}", raising=False)
    assert settings.parts(name) == ()
    monkeypatch.setenv(f"NIMBLE_{name}", f" a{between}{between}b {between}")
    assert settings.parts(name) == ("a", "b")


def test_observations_count_only_with_that_trust(monkeypatch):
    for trust in OPTIONS["TRUST"].words:
        monkeypatch.setenv("NIMBLE_TRUST", trust)
        assert settings.observes() == (trust == "observed")


def test_what_is_read(monkeypatch):
    for name, value in (("TORCH", "training"), ("LOG", "error"), ("TORCH_SKIP", "Net")):
        monkeypatch.setenv(f"NIMBLE_{name}", value)
    assert settings.read() == settings.Settings(("Net",), 1, True)
    for name, value in (("TORCH", "no"), ("LOG", "loud"), ("TORCH_SKIP", "")):
        monkeypatch.setenv(f"NIMBLE_{name}", value)
    assert settings.read() == settings.Settings((), 3, False)
